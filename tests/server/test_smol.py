"""Field cases on the real model, through the whole server: SmolLM2 behind `paceline serve`."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from running_server import RunningServer

MODEL = "smollm2-135m"
GREEDY = {"model": MODEL, "prompt": "One, two, three, four,", "temperature": 0, "max_tokens": 40}


@pytest.fixture(scope="module")
def greedy(smol: RunningServer) -> dict[str, Any]:
    """The first, unconstrained greedy run: its text is T."""
    choice: dict[str, Any] = smol.post("completions", GREEDY | {"logprobs": 0}).json()["choices"][0]
    return choice


def streamed(server: RunningServer, body: dict[str, Any]) -> tuple[list[str], str]:
    """(text deltas, finish reason) of a streamed completion."""
    deltas, reason = [], ""
    with httpx.stream("POST", f"{server.url}/completions", json=body | {"stream": True}, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line.removeprefix("data: "))["choices"][0]
                deltas.append(choice["text"])
                reason = choice["finish_reason"] or reason
    return deltas, reason


def test_b001_no_part_of_a_stop_string_is_sent(smol: RunningServer, greedy: dict[str, Any]) -> None:
    text = greedy["text"]

    def check(start: int, length: int) -> None:
        stop = text[start : start + length]
        expected = text[: text.index(stop)]
        deltas, reason = streamed(smol, GREEDY | {"stop": [stop]})
        assert ("".join(deltas), reason) == (expected, "stop"), (start, length)
        whole = smol.post("completions", GREEDY | {"stop": [stop]}).json()["choices"][0]
        assert (whole["text"], whole["finish_reason"]) == (expected, "stop"), (start, length)

    in_parallel(check, [(start, length) for start in range(1, 16) for length in range(1, 13)])


def in_parallel(check: Callable[..., None], cases: list[tuple[int, ...]]) -> None:
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda case: check(*case), cases))


def test_b003_a_stop_string_that_ends_inside_a_token_is_seen(smol: RunningServer, greedy: dict[str, Any]) -> None:
    text, tokens = greedy["text"], greedy["logprobs"]["tokens"]
    starts = greedy["logprobs"]["text_offset"]
    inside = [
        k
        for k in range(1, len(tokens))
        if len(tokens[k]) >= 4 and text.index(text[starts[k] - 1 : starts[k] + 3]) == starts[k] - 1
    ]
    k = inside[0]
    stop = text[starts[k] - 1 : starts[k] + 3]
    for stops in ([stop], [text[-5:], stop], [stop, stop[:-1]]):
        whole = smol.post("completions", GREEDY | {"stop": stops}).json()
        assert whole["choices"][0]["text"] == text[: starts[k] - 1]
        assert whole["usage"]["completion_tokens"] == k + 1
        deltas, reason = streamed(smol, GREEDY | {"stop": stops})
        assert ("".join(deltas), reason) == (text[: starts[k] - 1], "stop")


def test_b013_a_seed_does_not_depend_on_the_neighbours(smol: RunningServer) -> None:
    asked = {"model": MODEL, "prompt": "Once", "seed": 42, "temperature": 0.8, "max_tokens": 32, "ignore_eos": True}

    def texts(**change: Any) -> list[str]:
        return [choice["text"] for choice in smol.post("completions", asked | change).json()["choices"]]

    (alone,) = texts()
    for others in ([{"seed": None}] * 7, [{"seed": seed} for seed in range(7)], [{}]):
        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(texts, **change) for change in others]
            assert texts() == [alone]
            assert all(future.result() == [alone] for future, change in zip(running, others, strict=True) if not change)
    four = texts(n=4)
    assert four[0] == alone
    assert len(set(four)) > 1
    assert texts(n=4) == four


def test_b015_scoring_a_prompt(smol: RunningServer) -> None:
    asked = {"model": MODEL, "prompt": "\n1. Answer: Yés", "echo": True, "logprobs": 1, "temperature": 0}
    scores = []
    for max_tokens in (0, 3):
        answer = smol.post("completions", asked | {"max_tokens": max_tokens}).json()
        choice, num_prompt_tokens = answer["choices"][0], answer["usage"]["prompt_tokens"]
        logprobs = choice["logprobs"]
        assert choice["text"].startswith(asked["prompt"])
        assert "".join(logprobs["tokens"]) == choice["text"]
        assert len(logprobs["tokens"]) == num_prompt_tokens + max_tokens
        assert logprobs["text_offset"] == [len("".join(logprobs["tokens"][:i])) for i in range(len(logprobs["tokens"]))]
        assert logprobs["token_logprobs"][0] is None
        assert all(logprob < 0 for logprob in logprobs["token_logprobs"][1:])
        scores.append(logprobs["token_logprobs"][:num_prompt_tokens])
    assert scores[0] == scores[1]


def test_b031_scores_of_a_cached_prompt_are_the_same(smol: RunningServer) -> None:
    prompt = list(range(1000, 1033))
    asked = {"model": MODEL, "prompt": prompt, "echo": True, "logprobs": 2, "max_tokens": 1, "temperature": 0}
    runs = [smol.post("completions", asked).json()["choices"][0]["logprobs"] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0]["tokens"]) == 34
    shorter = smol.post("completions", asked | {"prompt": [*prompt[:20], 7, 8]}).json()["choices"][0]["logprobs"]
    assert shorter["token_logprobs"][:20] == runs[0]["token_logprobs"][:20]


def test_a_cached_prefix_is_counted_to_the_token(smol: RunningServer) -> None:
    asked = {"model": MODEL, "max_tokens": 1, "temperature": 0}
    first = smol.post("completions", asked | {"prompt": list(range(2000, 2100))}).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    second = smol.post("completions", asked | {"prompt": [*range(2000, 2077), 5, 6, 7]}).json()["usage"]
    assert second["prompt_tokens_details"]["cached_tokens"] == 77
    salted = smol.post("completions", asked | {"prompt": [*range(2000, 2077)], "cache_salt": "other"}).json()["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_request_beyond_the_context_is_told_the_arithmetic(smol: RunningServer) -> None:
    response = smol.post("completions", GREEDY | {"max_tokens": 10**6})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert "1000000" in error["message"]
    assert "do not fit the context of" in error["message"]
