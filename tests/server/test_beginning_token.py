"""B007: a beginning token once, whoever writes it. A tiny model whose id 2 is the beginning token, and SmolLM2."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.text.model_text import ModelText, load_model_text
from running_server import RunningServer, serve_model
from tiny_chat_model import BOS_ID, save_chat_model

MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose tokenizer puts <bos> before every text, and whose template writes it too."""
    return save_chat_model(tmp_path_factory.mktemp("with-bos"))


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


def prompt_ids(server: RunningServer, path: str, **fields: Any) -> list[int]:
    response = server.post(path, {"model": "tiny", "max_tokens": 1, "return_token_ids": True} | fields)
    assert response.status_code == 200, response.text
    answer = response.json()
    ids: list[int] = answer.get("prompt_token_ids") or answer["choices"][0]["prompt_token_ids"]
    return ids


def test_a_beginning_token_is_added_where_it_is_asked_for_and_never_twice(folder: Path, tiny: RunningServer) -> None:
    bare = load_model_text(str(folder)).tokenizer.encode("Hello", add_special_tokens=False)
    for added, expected in ((None, [BOS_ID, *bare]), (True, [BOS_ID, *bare]), (False, bare)):
        assert prompt_ids(tiny, "completions", prompt="Hello", add_special_tokens=added) == expected
    assert prompt_ids(tiny, "completions", prompt="<bos>Hello", add_special_tokens=False) == [BOS_ID, *bare]
    chat = rendered_ids(load_model_text(str(folder)))
    for added in (None, True, False):
        assert prompt_ids(tiny, "chat/completions", messages=MESSAGES, add_special_tokens=added) == chat


def test_a_truncated_prompt_loses_its_beginning_token(tiny: RunningServer) -> None:
    kept = prompt_ids(tiny, "completions", prompt="Hello", truncate_prompt_tokens=5)
    assert kept == prompt_ids(tiny, "completions", prompt="Hello", add_special_tokens=False)
