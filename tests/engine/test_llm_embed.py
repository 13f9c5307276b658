"""Embeddings in process: against transformers, independent of the batch, as meaningful as an untrained pooling is."""

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dequantized_model import transformers_model
from paceline import LLM
from paceline.config import EngineConfig
from paceline.errors import ContextLengthError, RequestError
from paceline.models.resolve import open_checkpoint, resolve

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
MODEL = "smollm2-135m"

# Two sayings of one thing a line; sayings of different lines are unrelated.
PARAPHRASES = [
    ("The cat is sleeping on the sofa.", "A cat sleeps on the couch."),
    ("How do I reset my password?", "I forgot my password; how can I change it?"),
    ("The stock market fell sharply today.", "Shares dropped steeply on the exchange this afternoon."),
    ("Water boils at one hundred degrees Celsius.", "The boiling point of water is 100 °C."),
    ("She plays the violin in an orchestra.", "She is a violinist in a symphony orchestra."),
    ("Our train was delayed by two hours.", "The train arrived two hours late."),
    ("Bake the bread for forty minutes.", "The loaf should stay in the oven for 40 minutes."),
    ("The company hired fifty new engineers.", "Fifty engineers were newly employed by the firm."),
]


@cache
def llm(pooling_type: str = "mean", kv_cache_dtype: str = "auto") -> LLM:
    sizes = {"max_model_len": 512, "max_num_seqs": 8}
    return LLM(EngineConfig(**sizes, pooling_type=pooling_type, kv_cache_dtype=kv_cache_dtype))


@cache
def reference() -> torch.nn.Module:
    path = resolve(MODEL)
    model: torch.nn.Module = transformers_model(path, open_checkpoint(path).spec)
    return model


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


# One state carries the whole rounding of a bfloat16 KV cache and 8-bit activations; a mean averages it away. The
# reference backend, which rounds neither, has a cosine of 1 to nine digits on the worst of these texts.
@pytest.mark.parametrize(
    ("pooling_type", "kv_cache_dtype", "least"),
    [("mean", "auto", 0.9995), ("last", "float32", 0.999), ("last", "auto", 0.998)],
)
def test_embeddings_are_those_of_the_dequantized_model(pooling_type: str, kv_cache_dtype: str, least: float) -> None:
    prose = PROSE.read_text()
    texts = ["Hello", *(prose[500 * k : 500 * k + 60 * k] for k in range(1, 9))]
    served = llm(pooling_type, kv_cache_dtype)
    ours = served.embed(texts)
    similarities = []
    for text, vector in zip(texts, ours, strict=True):
        ids = served.text.tokenizer.encode(text, add_special_tokens=True)
        with torch.no_grad():
            hidden = reference().model(torch.tensor([ids])).last_hidden_state[0].double().numpy()  # type: ignore[operator, union-attr]
        similarities.append(cosine(vector, hidden[-1] if pooling_type == "last" else hidden.mean(axis=0)))
    span = f"{min(similarities):.5f} to {max(similarities):.5f}"
    print(f"{pooling_type}, {kv_cache_dtype} KV: cosine with the dequantized model {span}")
    assert min(similarities) >= least


def test_more_prompts_than_rows_give_what_each_gives_alone() -> None:
    prompts = [f"Prompt number {index} of many." for index in range(30)]
    together = llm().embed(prompts)
    for index in (0, 13, 29):
        assert np.array_equal(llm().embed([prompts[index]])[0], together[index])


def test_dimensions_and_length() -> None:
    whole, raw = llm().embed(["A cat."])[0], llm().embed(["A cat."], normalize=False)[0]
    assert (whole.shape, whole.dtype) == ((576,), np.float32)
    assert np.linalg.norm(whole) == pytest.approx(1, abs=1e-6)
    assert cosine(whole, raw) == pytest.approx(1, abs=1e-6)
    (cut,) = llm().embed(["A cat."], dimensions=100)
    assert cut == pytest.approx(raw[:100] / np.linalg.norm(raw[:100]), abs=1e-6)


def test_what_can_not_be_served_is_refused_before_anything_runs() -> None:
    step_index = llm().engine.gauges().step_index
    with pytest.raises(ContextLengthError, match="513 tokens, the context holds 512"):
        llm().embed(["fine", [5] * 513])
    with pytest.raises(RequestError, match="the prompt is empty"):
        llm().embed(["fine", []])
    with pytest.raises(RequestError, match="dimensions must be between 1 and 576, got 577"):
        llm().embed(["fine"], dimensions=577)
    assert llm().engine.gauges().step_index == step_index


@pytest.mark.parametrize("pooling_type", ["last", "mean"])
def test_paraphrases_are_closer_than_unrelated_sentences(pooling_type: str) -> None:
    pairs = np.array([llm(pooling_type).embed(pair) for pair in PARAPHRASES])
    related = [float(a @ b) for a, b in pairs]
    unrelated = [float(x @ y) for one, other in combinations(pairs, 2) for x in one for y in other]
    firsts, seconds = pairs[:, 0], pairs[:, 1]
    found = int(((firsts @ seconds.T).argmax(axis=1) == np.arange(len(pairs))).sum())
    print(
        f"{pooling_type}: paraphrases {np.mean(related):.3f} ({min(related):.3f} to {max(related):.3f}), unrelated "
        f"{np.mean(unrelated):.3f} ({min(unrelated):.3f} to {max(unrelated):.3f}), "
        f"nearest is the paraphrase for {found} of {len(pairs)}"
    )
    assert np.mean(related) > np.mean(unrelated)
