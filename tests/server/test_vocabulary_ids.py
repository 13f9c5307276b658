"""B011: ids outside the vocabulary are refused by name, while a stream beside them goes on unchanged."""

import json
from typing import Any

import httpx
import pytest

from running_server import RunningServer

MODEL = "smollm2-135m"
VOCAB_SIZE = 49152
ASK = {"model": MODEL, "prompt": "Once", "max_tokens": 2, "temperature": 0}
NEIGHBOUR = ASK | {"max_tokens": 200, "ignore_eos": True, "stream": True, "return_token_ids": True}

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"logit_bias": {str(VOCAB_SIZE): -100}}, "logit_bias"),
    ({"logit_bias": {"-1": 5}}, "logit_bias"),
    ({"logit_bias": {"abc": 1}}, "logit_bias"),
    ({"logit_bias": {"5": "x"}}, "logit_bias"),
    ({"logit_bias": {"5": 100.5}}, "logit_bias"),
    ({"logit_bias": {"5": -101}}, "logit_bias"),
    ({"stop_token_ids": [VOCAB_SIZE], "min_tokens": 1}, "stop_token_ids"),
    ({"stop_token_ids": [-1], "min_tokens": 1}, "stop_token_ids"),
    ({"prompt": [[0, VOCAB_SIZE]]}, "prompt[0]"),
    ({"prompt": [0, VOCAB_SIZE]}, "prompt"),
]
SERVED: list[dict[str, Any]] = [
    {"logit_bias": {str(VOCAB_SIZE - 1): 100}},
    {"logit_bias": {str(VOCAB_SIZE - 1): -100}},
    {"stop_token_ids": [VOCAB_SIZE - 1], "min_tokens": 1},
    {"prompt": [[0, VOCAB_SIZE - 1]]},
]


def neighbours_ids(server: RunningServer, *attacks: dict[str, Any]) -> list[int]:
    """The ids of a stream during which `attacks` are posted, one after each event but the first."""
    ids: list[int] = []
    waiting = list(attacks)
    with httpx.stream("POST", f"{server.url}/completions", json=NEIGHBOUR, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                ids += json.loads(line.removeprefix("data: "))["choices"][0]["token_ids"]
                if ids and waiting:
                    server.post("completions", ASK | waiting.pop())
    assert not waiting, "the stream ended before all were posted"
    return ids


def test_b011_the_neighbours_tokens_do_not_change(smol: RunningServer) -> None:
    alone = neighbours_ids(smol)
    assert len(alone) == 200
    assert neighbours_ids(smol, *(body for body, _ in REFUSED), *SERVED) == alone


@pytest.mark.parametrize(("body", "param"), REFUSED)
def test_b011_an_id_outside_the_vocabulary_is_refused(smol: RunningServer, body: dict[str, Any], param: str) -> None:
    refused = smol.post("completions", ASK | body)
    error = refused.json()["error"]
    assert (refused.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["param"].startswith(param)
    assert smol.post("completions", ASK).status_code == 200


@pytest.mark.parametrize("body", SERVED)
def test_b011_the_last_id_is_accepted(smol: RunningServer, body: dict[str, Any]) -> None:
    assert smol.post("completions", ASK | body).status_code == 200


def test_b011_a_bias_works_up_to_the_last_id(smol: RunningServer) -> None:
    asked = ASK | {"logit_bias": {str(VOCAB_SIZE - 1): 100}, "return_token_ids": True}
    assert smol.post("completions", asked).json()["choices"][0]["token_ids"] == [VOCAB_SIZE - 1] * 2
