"""Mistakes of users: each gets OpenAI's error object with the parameter, and the next request is served."""

from collections.abc import Callable

import httpx
import openai
import pytest

from running_server import RunningServer
from scripted_text import VOCAB_SIZE

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
COMPLETION = {"model": "scripted", "prompt": "a", "max_tokens": 1}

REFUSED_CHAT = [
    ({"frobnicate": 1}, "frobnicate", "invalid_value"),
    ({"response_format": {"type": "structural_tag"}}, "response_format", "unsupported_parameter"),
    ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
    ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ({"best_of": 2}, "best_of", "unsupported_parameter"),
    ({"prompt": "a"}, "prompt", "invalid_value"),
    ({"messages": []}, "messages", "invalid_value"),
    ({"messages": None}, "messages", "invalid_value"),
    ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"content": "a"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "invalid_value"),
    ({"messages": [{"role": "user", "content": "a", "mood": 1}]}, "messages[0].mood", "invalid_value"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0]",
        "unsupported_parameter",
    ),
    ({"temperature": "hot"}, "temperature", "invalid_value"),
    ({"temperature": -0.1}, "temperature", "invalid_value"),
    ({"top_p": 0}, "top_p", "invalid_value"),
    ({"top_p": 1.5}, "top_p", "invalid_value"),
    ({"top_k": -2}, "top_k", "invalid_value"),
    ({"min_p": 2}, "min_p", "invalid_value"),
    ({"n": 0}, "n", "invalid_value"),
    ({"seed": 2**64}, "seed", "invalid_value"),
    ({"presence_penalty": 2.1}, "presence_penalty", "invalid_value"),
    ({"repetition_penalty": 0}, "repetition_penalty", "invalid_value"),
    ({"stop": ["a", ""]}, "stop", "invalid_value"),
    ({"stop": ["a", 1]}, "stop[1]", "invalid_value"),
    ({"stop": "x" * 1025}, "stop", "invalid_value"),
    ({"logprobs": 3}, "logprobs", "invalid_value"),
    ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    ({"logit_bias": {str(VOCAB_SIZE): -100}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"-1": 5}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"abc": 1}}, "logit_bias", "invalid_value"),
    ({"logit_bias": {"5": 101}}, "logit_bias", "invalid_value"),
    ({"stop_token_ids": [VOCAB_SIZE], "min_tokens": 1}, "stop_token_ids", "invalid_value"),
    ({"max_tokens": 5, "min_tokens": 6}, "min_tokens", "invalid_value"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", "invalid_value"),
    ({"cache_salt": ""}, "cache_salt", "invalid_value"),
    ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": {"shout": True}}, "stream_options.shout", "invalid_value"),
    ({"max_tokens": 5000}, "max_tokens", "context_length_exceeded"),
]
REFUSED_COMPLETION = [
    ({"suffix": "b"}, "suffix", "unsupported_parameter"),
    ({"prompt": None}, "prompt", "invalid_value"),
    ({"prompt": []}, "prompt", "invalid_value"),
    ({"prompt": ""}, "prompt", "invalid_value"),
    ({"prompt": [[0, VOCAB_SIZE]]}, "prompt[0]", "invalid_value"),
    ({"prompt": [0, -1]}, "prompt", "invalid_value"),
    ({"prompt": ["a", 1]}, "prompt", "invalid_value"),
    ({"prompt": [[1], []]}, "prompt[1]", "invalid_value"),
    ({"logprobs": True}, "logprobs", "invalid_value"),
    ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs", "invalid_value"),
    ({"prompt": "a" * 5000}, "prompt", "context_length_exceeded"),
    ({"messages": []}, "messages", "invalid_value"),
]


@pytest.mark.parametrize(("change", "param", "code"), REFUSED_CHAT)
def test_a_wrong_chat_field_is_named(server: RunningServer, change: dict[str, object], param: str, code: str) -> None:
    check_refused(server.post("chat/completions", CHAT | change), param, code)


@pytest.mark.parametrize(("change", "param", "code"), REFUSED_COMPLETION)
def test_a_wrong_completion_field_is_named(
    server: RunningServer, change: dict[str, object], param: str, code: str
) -> None:
    check_refused(server.post("completions", COMPLETION | change), param, code)


def check_refused(response: httpx.Response, param: str, code: str) -> None:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"], error["type"]) == (param, code, "invalid_request_error")
    assert len(error["message"]) < 300


def test_neutral_values_metadata_and_nulls_are_accepted(server: RunningServer) -> None:
    neutral = {
        "tools": [], "tool_choice": "none", "parallel_tool_calls": True, "response_format": {"type": "text"},
        "logit_bias": None, "best_of": 1, "functions": None, "store": True, "metadata": {"a": "b" * 1000},
        "service_tier": "auto", "user": "u", "stop": None, "seed": None, "top_k": -1, "stream_options": None,
    }  # fmt: skip
    response = server.post("chat/completions", CHAT | neutral)
    assert response.status_code == 200, response.text


def test_messages_of_openai_clients_are_accepted(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="scripted",
        max_completion_tokens=1,
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "brief"}]},
            {"role": "user", "content": "a", "name": "Ann"},
            {"role": "assistant", "content": "b", "refusal": None},
            {
                "role": "assistant",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "content": "7", "tool_call_id": "c1"},
            {"role": "user", "content": "c"},
        ],
    )
    assert answer.choices[0].message.content == " five"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b'{"model": 3}', b"\xff\xfe", b'{"messages": "\\ud800"}', b'{"n": 1e999}']
)
def test_a_body_that_is_no_request_is_refused(server: RunningServer, data: bytes) -> None:
    response = httpx.post(f"{server.url}/chat/completions", content=data)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")


def test_an_unknown_model_is_told_the_list(server: RunningServer) -> None:
    response = server.post("chat/completions", CHAT | {"model": "gpt-4"})
    assert response.status_code == 404
    assert response.json()["error"]["message"] == "the model 'gpt-4' is not served here; served: 'scripted'"
    assert response.json()["error"]["code"] == "model_not_found"
    assert httpx.get(f"{server.url}/models/gpt-4").status_code == 404
    assert httpx.get(f"{server.url}/models/scripted").json()["id"] == "scripted"


def test_unknown_paths_and_methods_answer_in_the_same_form(server: RunningServer) -> None:
    for response, status in ((server.post("nowhere", {}), 404), (httpx.get(f"{server.url}/completions"), 405)):
        assert response.status_code == status
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_keys_guard_v1_and_not_the_probes(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["secret-1", "secret-2"], "served_model_names": ["a", "b"]})
    root = server.url.removesuffix("/v1")
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret-1"}):
        for response in (
            httpx.get(f"{server.url}/models", headers=headers),
            server.post("completions", {}, headers=headers),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    with server.openai(api_key="secret-2") as client:
        assert [model.id for model in client.models.list()] == ["a", "b"]
        assert client.completions.create(model="b", prompt="a", max_tokens=1).model == "b"
    with server.openai() as client, pytest.raises(openai.AuthenticationError):
        client.models.list()
    for probe in ("health", "ready", "live", "version", "ping"):
        assert httpx.get(f"{root}/{probe}").status_code == 200, probe


def test_a_full_queue_answers_429(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.02, max_queued=1)
    body = COMPLETION | {"max_tokens": 50, "stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=5) as running:
        lines = running.iter_lines()
        next(lines)
        refused = server.post("completions", body)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "overloaded_error"
