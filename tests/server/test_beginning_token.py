"""B007: a beginning token once, whoever writes it. A tiny model whose id 2 is the beginning token, and SmolLM2."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from models.tiny_checkpoints import make_model, save_model
from paceline.text.model_text import ModelText, load_model_text
from running_server import RunningServer, serve_model

BOS_ID = 2
SPECIAL = ("<pad>", "<eos>", "<bos>", "<turn>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<turn>{{ message.role }}\n{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose tokenizer puts <bos> before every text, and whose template writes it too."""
    folder = tmp_path_factory.mktemp("with-bos")
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", BOS_ID)])
    save_model(make_model("llama", vocab_size=len(pieces)), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture(scope="module")
def tiny(folder: Path) -> Iterator[RunningServer]:
    server = serve_model(str(folder), "--served-model-name", "tiny", "--kv-memory", "16MiB")
    yield server
    assert server.stop() == 0


def scored(server: RunningServer, path: str, body: dict[str, Any]) -> tuple[int, list[Any]]:
    """(prompt tokens, the scores of the prompt): the k-th entry's key is the k-th id, and its score depends on all
    ids before it.
    """
    response = server.post(path, {"max_tokens": 1, "prompt_logprobs": 0} | body)
    assert response.status_code == 200, response.text
    answer = response.json()
    scores = answer["prompt_logprobs"] if "prompt_logprobs" in answer else answer["choices"][0]["prompt_logprobs"]
    return answer["usage"]["prompt_tokens"], scores


def rendered_ids(text: ModelText) -> list[int]:
    return text.tokenizer.encode(text.template.render(MESSAGES), add_special_tokens=False)


def test_b007_a_chat_has_the_beginning_token_of_its_template_alone(folder: Path, tiny: RunningServer) -> None:
    """B007 (a)."""
    ids = rendered_ids(load_model_text(str(folder)))
    assert (ids[0], ids.count(BOS_ID)) == (BOS_ID, 1)
    num_tokens, scores = scored(tiny, "chat/completions", {"model": "tiny", "messages": MESSAGES})
    assert num_tokens == len(ids)
    assert scores == scored(tiny, "completions", {"model": "tiny", "prompt": ids})[1]


def test_b007_a_text_gets_one_beginning_token(folder: Path, tiny: RunningServer) -> None:
    """B007 (b) and (c): written out or not, the ids are equal and begin with one 2."""
    ids = [BOS_ID, *load_model_text(str(folder)).tokenizer.encode("Hello", add_special_tokens=False)]
    expected = scored(tiny, "completions", {"model": "tiny", "prompt": ids})
    assert expected[0] == len(ids) == 6
    for prompt in ("<bos>Hello", "Hello"):
        assert scored(tiny, "completions", {"model": "tiny", "prompt": prompt}) == expected
    doubled = scored(tiny, "completions", {"model": "tiny", "prompt": [BOS_ID, *ids]})
    assert doubled[1][2:] != expected[1][1:], "a second beginning token changes no score, so this could not fail"


def test_b007_a_template_without_a_beginning_token_adds_none(smol: RunningServer) -> None:
    """B007 (d)."""
    ids = rendered_ids(load_model_text("smollm2-135m"))
    num_tokens, scores = scored(smol, "chat/completions", {"model": "smollm2-135m", "messages": MESSAGES})
    assert num_tokens == len(ids)
    assert scores == scored(smol, "completions", {"model": "smollm2-135m", "prompt": ids})[1]
