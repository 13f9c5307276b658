"""/v1/embeddings around the scripted engine: forms, refusals, clients that leave, shutdown, a dying engine.

The scripted state of an input is (first token, last token, number of tokens, 0, ...), so a vector tells what was sent.
"""

import base64
import contextlib
import math
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from running_server import RunningServer
from scripted_engine import EMBEDDING_WIDTH
from scripted_text import VOCAB_SIZE, byte_ids

ASKED = {"model": "scripted", "input": "abc"}
CONTEXT = 4096
LONG = [[5] * 4000] * 50  # a step a token: hundreds of seconds

REFUSED = [
    ({"input": None}, "input", "invalid_value"),
    ({"input": []}, "input", "invalid_value"),
    ({"input": ""}, "input", "invalid_value"),
    ({"input": ["a", ""]}, "input[1]", "invalid_value"),
    ({"input": ["a", 1]}, "input", "invalid_value"),
    ({"input": [["a"]]}, "input[0][0]", "invalid_value"),
    ({"input": {"text": "a"}}, "input", "invalid_value"),
    ({"input": [[1], []]}, "input[1]", "invalid_value"),
    ({"input": [0, VOCAB_SIZE]}, "input", "invalid_value"),
    ({"input": [[1], [-1]]}, "input[1]", "invalid_value"),
    ({"input": ["a"] * 2049}, "input", "invalid_value"),
    ({"input": [1] * 300_001}, "input", "invalid_value"),
    ({"input": [[1] * 1000] * 301}, "input", "invalid_value"),
    ({"input": "a" * (CONTEXT + 1)}, "input", "context_length_exceeded"),
    ({"input": [1] * (CONTEXT + 1)}, "input", "context_length_exceeded"),
    ({"input": ["a", "a" * (CONTEXT + 1)]}, "input[1]", "context_length_exceeded"),
    ({"encoding_format": "hex"}, "encoding_format", "invalid_value"),
    ({"dimensions": 0}, "dimensions", "invalid_value"),
    ({"dimensions": EMBEDDING_WIDTH + 1}, "dimensions", "invalid_value"),
    ({"dimensions": "many"}, "dimensions", "invalid_value"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "invalid_value"),
    ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens", "invalid_value"),
    ({"input": "a" * (CONTEXT + 9), "truncate_prompt_tokens": CONTEXT + 1}, "input", "context_length_exceeded"),
    ({"normalize": "yes"}, "normalize", "invalid_value"),
    ({"priority": 2**31}, "priority", "invalid_value"),
    ({"cache_salt": ""}, "cache_salt", "invalid_value"),
    ({"temperature": 1}, "temperature", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"frobnicate": 1}, "frobnicate", "invalid_value"),
]


def unit(*values: float) -> list[float]:
    """Scaled to length one, filled up with zeros."""
    length = math.hypot(*values)
    return [value / length for value in values] + [0.0] * (EMBEDDING_WIDTH - len(values))


def state(text: str) -> tuple[float, float, float]:
    ids = byte_ids(text)
    return ids[0], ids[-1], len(ids)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.02)


def vectors(response: httpx.Response) -> list[list[float]]:
    assert response.status_code == 200, response.text
    return [item["embedding"] for item in response.json()["data"]]


@pytest.mark.parametrize(("change", "param", "code"), REFUSED)
def test_a_wrong_field_is_named(server: RunningServer, change: dict[str, Any], param: str, code: str) -> None:
    response = server.post("embeddings", ASKED | change)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert len(error["message"]) < 300


def test_the_official_client_gets_the_vectors_in_order(client: openai.OpenAI) -> None:
    texts = ["abc", "b", "a longer text", "abc"]
    answer = client.embeddings.create(model="scripted", input=texts)
    assert [item.index for item in answer.data] == [0, 1, 2, 3]
    for item, text in zip(answer.data, texts, strict=True):
        assert item.embedding == pytest.approx(unit(*state(text)), abs=1e-6)
    num_tokens = sum(len(text) for text in texts)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (num_tokens, num_tokens)
    assert (answer.object, answer.model, answer.data[0].object) == ("list", "scripted", "embedding")


def test_numbers_and_base64_are_the_same_values(server: RunningServer) -> None:
    (numbers,) = vectors(server.post("embeddings", ASKED))
    (encoded,) = vectors(server.post("embeddings", ASKED | {"encoding_format": "base64"}))
    assert isinstance(encoded, str)
    assert array("f", base64.b64decode(encoded)).tolist() == numbers


def test_one_input_in_any_form_is_the_same(server: RunningServer) -> None:
    ids = byte_ids("abc")
    forms = ["abc", ["abc"], ids, [ids]]
    assert len({str(vectors(server.post("embeddings", ASKED | {"input": form}))) for form in forms}) == 1


def test_dimensions_are_cut_and_scaled_again(server: RunningServer) -> None:
    first, last, length = state("abc")
    (cut,) = vectors(server.post("embeddings", ASKED | {"dimensions": 2}))
    assert cut == pytest.approx(unit(first, last)[:2], abs=1e-6)
    (raw,) = vectors(server.post("embeddings", ASKED | {"dimensions": 3, "normalize": False}))
    assert raw == [first, last, length]


@pytest.mark.parametrize(("asked", "kept"), [(-1, CONTEXT), (5, 5)])
def test_truncation_keeps_the_last_tokens(server: RunningServer, asked: int, kept: int) -> None:
    text = "x" * CONTEXT + "yz"
    for form in (text, byte_ids(text)):
        change = {"input": form, "truncate_prompt_tokens": asked, "normalize": False}
        (vector,) = vectors(server.post("embeddings", ASKED | change))
        assert vector[:3] == [*state(text[-kept:])]


def test_neutral_fields_and_metadata_are_accepted(server: RunningServer) -> None:
    neutral = {"user": "u", "encoding_format": None, "dimensions": None, "add_special_tokens": True, "priority": None}
    assert vectors(server.post("embeddings", ASKED | neutral)) == vectors(server.post("embeddings", ASKED))


def test_a_thousand_inputs_take_half_of_the_rows(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server(journal=str(journal), max_queued=64)
    texts = [f"text {index}" for index in range(1000)]
    answer = server.post("embeddings", ASKED | {"input": texts, "normalize": False})
    assert [vector[2] for vector in vectors(answer)] == [len(text) for text in texts]
    assert max(int(line.split()[0]) for line in journal.read_text().splitlines()) == 32


def test_keys_names_and_methods_are_checked(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["secret"]})
    assert server.post("embeddings", ASKED).status_code == 401
    headers = {"authorization": "Bearer secret"}
    assert server.post("embeddings", ASKED | {"model": "other"}, headers=headers).status_code == 404
    assert httpx.get(f"{server.url}/embeddings", headers=headers).status_code == 405
    assert server.post("embeddings", ASKED, headers=headers).status_code == 200


def test_a_client_that_leaves_cancels_its_inputs(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server(step_s=0.005, journal=str(journal))
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{server.url}/embeddings", json=ASKED | {"input": LONG}, timeout=1)
    wait_for(lambda: journal.read_text().endswith("0 32\n"))
    time.sleep(0.2)
    assert journal.read_text().endswith("0 32\n"), "something runs after the step that reported the cancellations"
    assert server.post("embeddings", ASKED).status_code == 200


def test_a_shutdown_ends_what_is_not_through(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server({"shutdown_timeout_s": 0.3}, step_s=0.01, journal=str(journal))
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(server.post("embeddings", ASKED | {"input": LONG})))
    asking.start()
    wait_for(lambda: journal.read_text() != "")
    assert server.stop() == 0
    asking.join(5)
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "unavailable")


def test_an_engine_that_dies_answers_503(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(faults={"7": "exit"})
    response = server.post("embeddings", ASKED | {"input": [[5, 6], [7, 8], [9, 10]]})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")
    assert "retry-after" in response.headers


def test_inputs_count_towards_a_keys_tokens(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"rate_limit_tokens": 1000})
    first = server.post("embeddings", ASKED | {"input": ["x" * 300, "y" * 300]})
    assert (first.status_code, first.headers["x-ratelimit-limit-tokens"]) == (200, "1000")
    refused = server.post("embeddings", ASKED | {"input": "x" * 900})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "900, and 4" in refused.json()["error"]["message"]
    assert server.post("embeddings", ASKED | {"input": "x" * 300}).status_code == 200


def test_the_request_timeout_ends_a_call(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server({"request_timeout_s": 0.5}, step_s=0.01, journal=str(journal))
    response = server.post("embeddings", ASKED | {"input": LONG})
    assert (response.status_code, response.json()["error"]["code"]) == (504, "request_timeout")
    wait_for(lambda: journal.read_text().endswith("0 32\n"))
