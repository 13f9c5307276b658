"""/tokenize and /detokenize: the ids a generation would begin with, and back."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from running_server import RunningServer
from scripted_text import VOCAB_SIZE, byte_ids

USER = {"role": "user", "content": "a"}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
TEXTS = [
    "",
    " ",
    "Hello, world!",
    "日本 Yés\n\n",
    "<|im_start|>user\nHi<|im_end|>",
    "  two  spaces ",
    "\x00\x7f",
    "é" * 300,
]


def post(server: RunningServer, path: str, body: object, **options: Any) -> httpx.Response:
    root = server.url.removesuffix("/v1")
    return httpx.post(f"{root}/{path}", json=body, timeout=20, **options)


@pytest.mark.parametrize("text", TEXTS)
def test_there_and_back_is_the_same_text(server: RunningServer, smol: RunningServer, text: str) -> None:
    for running in (server, smol):
        answer = post(running, "tokenize", {"prompt": text}).json()
        assert answer["count"] == len(answer["tokens"])
        assert post(running, "detokenize", {"tokens": answer["tokens"]}).json() == {"prompt": text}


def test_the_answer_has_the_shape_of_vllms(server: RunningServer) -> None:
    answer = post(server, "tokenize", {"prompt": " é", "model": "scripted", "return_token_strs": True}).json()
    ids = byte_ids(" é")
    assert answer == {"count": 3, "max_model_len": 4096, "tokens": ids, "token_strs": ["Ġ", "Ã", "©"]}
    assert post(server, "tokenize", {"prompt": "a"}).json()["token_strs"] is None
    assert post(server, "v1/tokenize", {"prompt": " é"}).json()["tokens"] == ids
    assert post(server, "v1/detokenize", {"tokens": ids}).json() == {"prompt": " é"}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"add_special_tokens": True},
        {"tools": TOOLS},
        {"tools": TOOLS, "tool_choice": "none"},
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    ],
    ids=lambda options: " ".join(options) or "default",
)
def test_a_conversation_has_the_ids_its_answer_begins_with(smol: RunningServer, options: dict[str, Any]) -> None:
    conversation = {"messages": [USER, {"role": "assistant", "content": "On"}], "model": "smollm2-135m"} | options
    answer = smol.post("chat/completions", conversation | {"max_tokens": 1, "return_token_ids": True}).json()
    counted = post(smol, "tokenize", conversation).json()
    assert counted["tokens"] == answer["prompt_token_ids"]
    assert counted["count"] == answer["usage"]["prompt_tokens"]


def test_a_text_longer_than_the_context_is_counted(server: RunningServer) -> None:
    answer = post(server, "tokenize", {"prompt": "x" * 5000}).json()
    assert (answer["count"], answer["max_model_len"]) == (5000, 4096)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": "a", "messages": [USER]}, "prompt"),
        ("tokenize", {"messages": []}, "messages"),
        ("tokenize", {"prompt": "a", "tools": TOOLS}, "tools"),
        ("tokenize", {"prompt": "a", "tools": [{"type": "?"}]}, "tools[0].type"),
        ("tokenize", {"prompt": "a", "continue_final_message": True}, "continue_final_message"),
        ("tokenize", {"prompt": "a", "chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ("tokenize", {"prompt": ["a"]}, "prompt"),
        ("tokenize", {"prompt": "a", "tokens": [1]}, "tokens"),
        ("tokenize", {"prompt": "a", "max_tokens": 1}, "max_tokens"),
        ("tokenize", {"messages": [USER], "chat_template": "{{ 1 }}"}, "chat_template"),
        ("tokenize", {"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
        ("detokenize", {}, "tokens"),
        ("detokenize", {"tokens": None}, "tokens"),
        ("detokenize", {"tokens": [VOCAB_SIZE]}, "tokens"),
        ("detokenize", {"tokens": [-1]}, "tokens"),
        ("detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("detokenize", {"tokens": [1] * 140_000}, "tokens"),
        ("detokenize", {"tokens": [1], "prompt": "a"}, "prompt"),
    ],
)
def test_a_wrong_field_is_named(server: RunningServer, path: str, body: dict[str, Any], param: str) -> None:
    refused = post(server, path, body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param), refused.text


def test_an_unknown_model_is_told_the_list(server: RunningServer) -> None:
    for path, body in (("tokenize", {"prompt": "a"}), ("detokenize", {"tokens": [5]})):
        refused = post(server, path, body | {"model": "gpt-4"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        assert "'scripted'" in refused.json()["error"]["message"]


def test_the_routes_ask_for_the_key(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["secret"]})
    for path, body in (("tokenize", {"prompt": "a"}), ("detokenize", {"tokens": [5]})):
        for prefix in ("", "v1/"):
            assert post(server, prefix + path, body).status_code == 401
            assert post(server, prefix + path, body, headers={"authorization": "Bearer secret"}).status_code == 200
