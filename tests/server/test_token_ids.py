"""`return_token_ids` and `continuous_usage_stats`: the ids shown are those that usage counts, whole and streamed."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from running_server import RunningServer
from scripted_text import SCRIPT, TURN_END_ID, WORD_IDS, byte_ids

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "return_token_ids": True}
COMPLETION = {"model": "scripted", "prompt": "ab", "return_token_ids": True}
CHAT_IDS = [1, *byte_ids("user\na"), 2, *byte_ids("\n"), 1, *byte_ids("assistant\n")]
ENDINGS: list[tuple[dict[str, Any], int]] = [
    ({"max_tokens": 7}, 7),
    ({"max_tokens": len(SCRIPT)}, len(SCRIPT)),
    ({"stop_token_ids": [WORD_IDS[" eight"]]}, SCRIPT.index(WORD_IDS[" eight"]) + 1),
    ({"stop": [", ei"]}, SCRIPT.index(WORD_IDS[" eight"]) + 1),
    ({"stop": [", ei"], "include_stop_str_in_output": True}, SCRIPT.index(WORD_IDS[" eight"]) + 1),
    ({"stop": ["seven, X", " six"]}, SCRIPT.index(WORD_IDS[" six"]) + 1),
    ({"max_tokens": 7, "logprobs": True}, 7),
]


def chunks(server: RunningServer, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    with httpx.stream("POST", f"{server.url}/{path}", json=body | {"stream": True}, timeout=20) as response:
        assert response.status_code == 200, response.read()
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.parametrize(("ending", "num_tokens"), ENDINGS)
@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_the_ids_are_those_that_usage_counts(
    server: RunningServer, path: str, ending: dict[str, Any], num_tokens: int
) -> None:
    is_chat = path.startswith("chat")
    body = (CHAT if is_chat else COMPLETION) | ending
    if not is_chat and "logprobs" in body:
        body["logprobs"] = 1
    whole = server.post(path, body).json()
    choice = whole["choices"][0]
    assert choice["token_ids"] == SCRIPT[:num_tokens]
    assert whole["usage"]["completion_tokens"] == num_tokens
    prompt_ids = whole["prompt_token_ids"] if is_chat else choice["prompt_token_ids"]
    assert prompt_ids == (CHAT_IDS if is_chat else byte_ids("ab"))
    first, *rest = chunks(server, path, body)
    told = first["prompt_token_ids"] if is_chat else first["choices"][0]["prompt_token_ids"]
    assert told == prompt_ids
    assert [i for chunk in rest for i in chunk["choices"][0].get("token_ids", [])] == SCRIPT[:num_tokens]
    assert "prompt_token_ids" not in json.dumps(rest)


def test_an_end_token_is_among_the_ids_and_not_in_the_text(smol: RunningServer) -> None:
    body = {"model": "smollm2-135m", "messages": [{"role": "user", "content": "Say hi."}], "temperature": 0}
    body |= {"logit_bias": {str(TURN_END_ID): 100}, "return_token_ids": True, "max_tokens": 5}
    answer = smol.post("chat/completions", body).json()
    assert answer["choices"][0]["token_ids"] == [TURN_END_ID]
    assert answer["choices"][0]["message"]["content"] == ""
    assert answer["usage"]["completion_tokens"] == 1


def test_every_prompt_and_choice_has_its_ids(server: RunningServer) -> None:
    body = COMPLETION | {"prompt": ["ab", "c"], "n": 2, "max_tokens": 3, "echo": True}
    choices = server.post("completions", body).json()["choices"]
    assert [choice["prompt_token_ids"] for choice in choices] == [byte_ids(text) for text in ("ab", "ab", "c", "c")]
    assert [choice["token_ids"] for choice in choices] == [SCRIPT[:3], SCRIPT[1:4]] * 2
    found = chunks(server, "completions", body)
    assert [chunk["choices"][0]["prompt_token_ids"] for chunk in found[:4]] == [c["prompt_token_ids"] for c in choices]


def test_nothing_of_it_is_there_unasked(server: RunningServer) -> None:
    for path, body in (("chat/completions", CHAT), ("completions", COMPLETION)):
        plain = body | {"return_token_ids": False, "max_tokens": 2}
        assert "token_ids" not in server.post(path, plain).text
        assert "token_ids" not in json.dumps(chunks(server, path, plain))


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_usage_so_far_is_on_every_chunk_when_asked_for(start_server: Callable[..., RunningServer], path: str) -> None:
    server = start_server(step_s=0.05)
    body = (CHAT if path.startswith("chat") else COMPLETION) | {"n": 2, "max_tokens": 5}
    options = {"include_usage": True, "continuous_usage_stats": True}
    usages = [chunk["usage"] for chunk in chunks(server, path, body | {"stream_options": options})]
    counts = [usage["completion_tokens"] for usage in usages]
    assert (counts[0], counts[-1]) == (0, 10)
    assert counts == sorted(counts)
    assert len(set(counts)) >= 5
    assert all(usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)
    assert len({usage["prompt_tokens"] for usage in usages}) == 1
    alone = chunks(server, path, body | {"stream_options": {"continuous_usage_stats": True}})
    assert all("usage" not in chunk for chunk in alone), "without include_usage there is no usage to repeat"


def test_ids_and_usage_are_told_beside_tools_too(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"tool_call_parser": "hermes"}, step_s=0.02)
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = CHAT | {"tools": tools, "max_tokens": 7}
    whole = server.post("chat/completions", body).json()
    assert whole["choices"][0]["token_ids"] == SCRIPT[:7]
    options = {"include_usage": True, "continuous_usage_stats": True}
    first, *rest = chunks(server, "chat/completions", body | {"stream_options": options})
    assert first["prompt_token_ids"] == whole["prompt_token_ids"]
    told = [i for chunk in rest for choice in chunk["choices"] for i in choice.get("token_ids", [])]
    assert told == SCRIPT[:7]
    counts = [chunk["usage"]["completion_tokens"] for chunk in rest]
    assert counts == sorted(counts)
    assert (len(set(counts)) > 3, counts[-1]) == (True, 7)
