"""`paceline eval` and the functions below it, against transformers in float32 and NumPy in float64."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import paceline
from numpy.typing import NDArray
from tiny_folder import BOS_ID, tiny_folder, tiny_model

from dequantized_model import transformers_model
from paceline.config import EngineConfig
from paceline.errors import ConfigError
from paceline.models.resolve import open_checkpoint, resolve
from paceline.offline.judged_model import first_tokens, open_judged
from paceline.offline.judgement import compare, score
from paceline.offline.windows import Window, cut
from paceline.text.model_text import load_model_text

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
TEXT = PROSE.read_text()[:400]
WINDOW, STRIDE = 64, 24
# Tiny models gain nothing from threads, and lose much where other work has the cores.
torch.set_num_threads(1)
# float32 kernels against float32 torch: the logits agree to 1e-4 of their range.
TOLERANCE = 2e-3


def reference_logprobs(model: Any, windows: list[Window]) -> NDArray[np.float64]:
    """ln p of the whole vocabulary at every scored position, from a whole pass of transformers a window."""
    parts = []
    for window in windows:
        with torch.no_grad():
            logits = model(torch.tensor([window.tokens.tolist()]), use_cache=False).logits[0].double().numpy()
        judged = logits[window.first_scored - 1 : -1]
        judged = judged - judged.max(-1, keepdims=True)
        parts.append(judged - np.log(np.exp(judged).sum(-1, keepdims=True)))
    return np.concatenate(parts)


def targets_of(windows: list[Window]) -> NDArray[np.int32]:
    return np.concatenate([window.tokens[window.first_scored :] for window in windows])


def other_model() -> Any:
    """A model near the tiny one: its weights with some noise."""
    model = tiny_model()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.mark.parametrize("adds_bos", [False, True])
def test_perplexity_agreement_and_divergence_are_those_of_an_independent_computation(
    adds_bos: bool, tmp_path: Path
) -> None:
    models = (tiny_model(), other_model())
    folders = [tiny_folder(tmp_path / str(i), model, adds_bos) for i, model in enumerate(models)]
    ours, theirs = (
        open_judged(EngineConfig(str(folder), kv_cache_dtype="float32", max_num_batched_tokens=20), WINDOW)
        for folder in folders
    )
    first = first_tokens(ours.tokenizer)
    assert first == ([BOS_ID] if adds_bos else [])
    windows = list(cut(ours.tokenizer.encode(TEXT, add_special_tokens=False), first, WINDOW, STRIDE))
    p, q = (reference_logprobs(model, windows) for model in models)
    targets = targets_of(windows)
    places = np.arange(len(targets))
    divergences = (np.exp(p) * (p - q)).sum(-1)
    found = compare(ours.logits, theirs.logits, windows)
    for scores, logprobs in ((found.reference, p), (found.candidate, q)):
        np.testing.assert_allclose(scores.surprisals, -logprobs[places, targets], atol=TOLERANCE)
        expected = math.exp(-logprobs[places, targets].mean())
        assert scores.perplexity == pytest.approx(expected, rel=TOLERANCE)
    np.testing.assert_allclose(found.divergences, divergences, atol=TOLERANCE)
    assert divergences.mean() > 20 * TOLERANCE, "the models are too alike for this test"
    assert found.mean_kl == pytest.approx(divergences.mean(), rel=0.01)
    assert found.p99_kl == pytest.approx(np.quantile(divergences, 0.99), rel=0.01)
    assert found.max_kl == pytest.approx(divergences.max(), rel=0.01)
    assert found.top_agreement == pytest.approx((p.argmax(-1) == q.argmax(-1)).mean(), abs=2.5 / len(targets))
    assert found.perplexity_ratio == pytest.approx(found.candidate.perplexity / found.reference.perplexity)
    alone = score(ours.logits, windows)
    assert alone.surprisals.tolist() == found.reference.surprisals.tolist()


def test_a_model_does_not_differ_from_itself(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    ours, again = (open_judged(EngineConfig(str(folder)), WINDOW) for _ in range(2))
    windows = list(cut(ours.tokenizer.encode(TEXT, add_special_tokens=False), [], WINDOW, STRIDE))
    found = compare(ours.logits, again.logits, windows)
    assert found.max_kl == 0.0
    assert found.top_agreement == 1.0
    assert found.perplexity_ratio == 1.0


@pytest.mark.parametrize("first", [[], [99]])
@pytest.mark.parametrize(("size", "stride"), [(2, 1), (8, 1), (8, 4), (8, 7), (100, 50)])
@pytest.mark.parametrize("num_tokens", [2, 3, 8, 9, 50])
def test_every_token_is_scored_once_with_the_context_that_is_promised(
    first: list[int], size: int, stride: int, num_tokens: int
) -> None:
    size += len(first)
    windows = list(cut(range(num_tokens), first, size, stride))
    scored = [int(token) for window in windows for token in window.tokens[window.first_scored :]]
    assert scored == list(range(0 if first else 1, num_tokens))
    for window in windows:
        assert len(window.tokens) <= size
        assert window.tokens[: len(first)].tolist() == first
        text = window.tokens[len(first) :].tolist()
        assert text == list(range(text[0], text[0] + len(text)))
    for window in windows[1:]:
        assert window.first_scored - len(first) >= size - len(first) - stride


@pytest.mark.parametrize(("num_tokens", "size", "stride"), [(1, 8, 4), (0, 8, 4), (9, 8, 0), (9, 8, 9)])
def test_windows_that_can_not_be_are_refused(num_tokens: int, size: int, stride: int) -> None:
    with pytest.raises(ConfigError, match=r"--stride|at least 2"):
        list(cut(range(num_tokens), [], size, stride))


def evaluated(*arguments: object) -> dict[str, Any]:
    done = paceline("eval", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    fields: dict[str, Any] = json.loads(done.stdout)
    return fields


def test_the_built_in_model_has_the_perplexity_of_its_dequantized_weights(tmp_path: Path) -> None:
    """As served, activations in int8 and KV in bfloat16: within 1 %. The command, and the portable kernels beside."""
    prose = tmp_path / "prose.txt"
    prose.write_text(PROSE.read_text()[:1500])
    path = resolve("smollm2-135m")
    model = transformers_model(path, open_checkpoint(path).spec)
    fields = evaluated("smollm2-135m", "--text", prose, "--window", "128", "--against-isa", "portable")
    tokens = load_model_text("smollm2-135m").tokenizer.encode(prose.read_text(), False)
    windows = list(cut(tokens, [], 128, 64))
    targets = targets_of(windows)
    logprobs = reference_logprobs(model, windows)[np.arange(len(targets)), targets]
    assert fields["num_tokens"] == len(targets) == len(tokens) - 1
    assert fields["perplexity"] == pytest.approx(math.exp(-logprobs.mean()), rel=0.01)
    assert fields["against_perplexity"] == pytest.approx(math.exp(-logprobs.mean()), rel=0.01)
    assert fields["top_agreement"] > 0.97
    assert fields["mean_kl"] < 0.005


@pytest.mark.parametrize(
    ("ways", "least", "most"),
    [
        (("--kv-cache-dtype", "float32", "--against-kv-cache-dtype", "bfloat16"), 1e-9, 0.01),
        (("--against-quantization", "int8"), 1e-6, 0.1),
    ],
)
def test_another_format_of_a_model_is_compared_with_its_own(
    ways: tuple[str, ...], least: float, most: float, tmp_path: Path
) -> None:
    folder = tiny_folder(tmp_path / "model")
    (tmp_path / "text").write_text(TEXT)
    fields = evaluated(folder, "--text", tmp_path / "text", "--window", "64", *ways)
    assert least < fields["mean_kl"] < most
    assert fields["against"] == str(folder)


def test_the_table_of_a_model_against_itself(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path / "model")
    (tmp_path / "text").write_text(TEXT)
    done = paceline("eval", folder, "--text", tmp_path / "text", "--window", "64", "--against", folder)
    assert done.returncode == 0, done.stderr
    assert "100.00% of positions" in done.stdout
    assert "mean 0.000000" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--text", "none.txt"), "none.txt"),
        (("--text", "latin.txt"), "UTF-8"),
        (("--text", "short.txt"), "at least 2"),
        (("--text", "text.txt", "--window", "129"), "128"),
        (("--text", "text.txt", "--stride", "65"), "--stride"),
        (("--text", "text.txt", "--kv-cache-dtype", "int3"), "--kv-cache-dtype"),
        (("--text", "text.txt", "--isa", "sse"), "--isa"),
        (("--text", "text.txt", "--against-quantization", "int3"), "--quantization"),
        (("--text", "text.txt", "--against", "./none"), "nothing is there"),
        (("--text", "text.txt", "--against", "smaller"), "vocabularies of 257 and 300"),
        (("--text", "text.txt", "--against", "shuffled"), "token 1 is"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    tiny_folder(tmp_path / "model")
    tiny_folder(tmp_path / "smaller", tiny_model(vocab_size=300))
    tiny_folder(tmp_path / "shuffled", first_bytes="zyx")
    for name, content in (("text", TEXT.encode()), ("latin", b"\xe9t\xe9"), ("short", b"a")):
        (tmp_path / f"{name}.txt").write_bytes(content)
    window = () if "--window" in arguments else ("--window", "64")
    done = paceline("eval", "model", *arguments, *window, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
