"""What a client of a stream sees: chunks, stop strings, usage. The engine says SCRIPT_TEXT, over and over."""

import json

import httpx
import openai
import pytest

from running_server import RunningServer
from scripted_text import SCRIPT, SCRIPT_TEXT, WORD_IDS

T = SCRIPT_TEXT
ASK = {"model": "scripted", "prompt": "One, two, three, four,", "temperature": 0, "max_tokens": len(SCRIPT)}
CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "Count."}], "temperature": 0}


def events(server: RunningServer, path: str, body: dict[str, object]) -> list[dict[str, object] | str]:
    """The data of every event, decoded, with the framing checked."""
    with httpx.stream("POST", f"{server.url}/{path}", json=body, timeout=20) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        raw = response.read().decode()
    assert raw.endswith("\n\n")
    found: list[dict[str, object] | str] = []
    for block in raw.removesuffix("\n\n").split("\n\n"):
        assert block.startswith("data: ")
        assert "\n" not in block
        data = block.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    assert found[-1] == "[DONE]"
    return found


@pytest.mark.parametrize("length", range(1, 13))
def test_b001_no_part_of_a_stop_string_is_sent(client: openai.OpenAI, length: int) -> None:
    for start in range(1, 16):
        stop = T[start : start + length]
        expected = T[: T.index(stop)]
        deltas = [chunk.choices[0] for chunk in client.completions.create(**ASK, stream=True, stop=[stop])]
        sent = ""
        for delta in deltas:
            sent += delta.text
            assert expected.startswith(sent), (start, length)
        assert sent == expected
        assert [d.finish_reason for d in deltas if d.finish_reason] == ["stop"]
        whole = client.completions.create(**ASK, stop=[stop]).choices[0]
        assert (whole.text, whole.finish_reason) == (expected, "stop")


def test_b003_a_stop_string_that_ends_inside_a_token_is_seen(client: openai.OpenAI) -> None:
    position = SCRIPT.index(WORD_IDS[" eight"])
    for stop in (", ei", [", ei", "eight"], ["eight, nine", ", ei"]):
        answer = client.completions.create(**ASK, stop=stop)
        assert answer.choices[0].text == T[: T.index(", ei")]
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == position + 1


def test_include_stop_str_in_output_keeps_the_stop_string(client: openai.OpenAI) -> None:
    answer = client.completions.create(**ASK, stop=[", ei"], extra_body={"include_stop_str_in_output": True})
    assert answer.choices[0].text == T[: T.index(", ei") + len(", ei")]


def test_text_held_back_for_a_stop_string_comes_when_it_did_not_complete(client: openai.OpenAI) -> None:
    stop = T[20:30] + "X"
    sent = "".join(c.choices[0].text for c in client.completions.create(**ASK, stream=True, stop=[stop]))
    assert sent == T


def test_a_character_split_over_tokens_is_sent_whole(client: openai.OpenAI) -> None:
    deltas = [chunk.choices[0].text for chunk in client.completions.create(**ASK, stream=True)]
    assert "".join(deltas) == T
    assert "�" not in "".join(deltas)
    cut = client.completions.create(**ASK | {"max_tokens": SCRIPT.index(0xE6 + 3) + 2})
    assert cut.choices[0].text.endswith(" �")


def test_a_stop_token_ends_the_choice_and_is_not_shown(client: openai.OpenAI) -> None:
    stop_id = WORD_IDS[" eight"]
    answer = client.completions.create(**ASK, logprobs=0, extra_body={"stop_token_ids": [stop_id]})
    assert answer.choices[0].text == T[: T.index(" eight")]
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == SCRIPT.index(stop_id) + 1
    assert "".join(answer.choices[0].logprobs.tokens) == answer.choices[0].text


def test_chat_chunks_have_the_order_and_shape_of_openai(server: RunningServer) -> None:
    found = events(server, "chat/completions", CHAT | {"stream": True, "max_tokens": 2})
    chunks = [chunk for chunk in found if isinstance(chunk, dict)]
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {"content": " five"}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {"content": ","}, "logprobs": None, "finish_reason": None}],
        [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "length"}],
    ]
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert {(chunk["object"], chunk["model"]) for chunk in chunks} == {("chat.completion.chunk", "scripted")}


def test_b005_usage_comes_once_and_only_when_asked_for(server: RunningServer) -> None:
    body = CHAT | {"n": 2, "max_tokens": 5, "ignore_eos": True}
    whole = server.post("chat/completions", body).json()
    num_prompt_tokens = whole["usage"]["prompt_tokens"]
    assert whole["usage"]["completion_tokens"] == 10
    plain = events(server, "chat/completions", body | {"stream": True})
    assert all("usage" not in chunk for chunk in plain[:-1])
    asked = events(server, "chat/completions", body | {"stream": True, "stream_options": {"include_usage": True}})
    *ordinary, last, done = asked
    assert done == "[DONE]"
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in ordinary)
    assert sum(chunk["choices"][0]["finish_reason"] is not None for chunk in ordinary) == 2
    assert last["choices"] == []
    usage = {name: last["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    assert usage == {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": 10,
        "total_tokens": num_prompt_tokens + 10,
    }
    refused = server.post("chat/completions", body | {"stream_options": {"include_usage": True}})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream_options")


def test_n_choices_stream_side_by_side(client: openai.OpenAI) -> None:
    texts = ["", "", ""]
    for chunk in client.chat.completions.create(**CHAT, n=3, max_tokens=4, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [" five, six,", ", six, sev", " six, seven"]


def test_several_prompts_keep_their_places(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt=["a", "b"], n=2, max_tokens=1, echo=True)
    assert [(c.index, c.text) for c in answer.choices] == [(0, "a five"), (1, "a,"), (2, "b five"), (3, "b,")]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 4)


def test_cached_tokens_are_reported(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="scripted", prompt="x" * 40, n=2, max_tokens=1)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 32


def test_an_echoed_stream_begins_with_the_prompt(client: openai.OpenAI) -> None:
    chunks = client.completions.create(model="scripted", prompt="Yés", max_tokens=2, echo=True, stream=True)
    assert [chunk.choices[0].text for chunk in chunks] == ["Yés", " five", ","]
