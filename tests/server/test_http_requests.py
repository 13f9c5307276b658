"""What reaches the engine: the request it gets for what a client sent, field by field."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine_requests import Asker, asked, asking
from paceline.core.request import SamplingParams
from running_server import launch, wait_until_ready
from scripted_text import END_ID, TURN_END_ID, byte_ids


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    with asking(tmp_path_factory.mktemp("requests")) as ask:
        yield ask


def test_defaults_are_the_engines(ask: Asker) -> None:
    request = ask()
    assert asdict(request.sampling) | {"seed": 0} == asdict(SamplingParams())
    assert (request.num_sequences, request.priority, request.namespace) == (1, 0, b"")
    assert request.stop.stop_token_ids == {END_ID, TURN_END_ID}
    assert request.stop.max_tokens == 64 - len(request.prompt), "a missing max_tokens is all that the context leaves"


def test_the_template_makes_the_prompt(ask: Asker) -> None:
    turn = [1, *byte_ids("user\na"), 2, *byte_ids("\n")]
    assert list(ask().prompt) == [*turn, 1, *byte_ids("assistant\n")]
    assert list(ask(add_generation_prompt=False).prompt) == turn
    assert list(ask(messages=[{"role": "developer", "content": "a"}]).prompt)[1:8] == byte_ids("system\n")


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"top_k": -1}, {"top_k": None}),
        ({"top_k": 0}, {"top_k": None}),
        ({"top_k": 10**6}, {"top_k": None}),
        ({"top_k": 5, "top_p": 0.5, "min_p": 0.1}, {"top_k": 5, "top_p": 0.5, "min_p": 0.1}),
        ({"seed": 42}, {"seed": 42}),
        ({"seed": -1}, {"seed": 2**64 - 1}),
        ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
        ({"presence_penalty": -2, "frequency_penalty": 2}, {"presence_penalty": -2.0, "frequency_penalty": 2.0}),
        ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
        ({"logit_bias": {"7": 100, "3": -100}}, {"logit_bias": ((3, -100.0), (7, 100.0))}),
        ({"logprobs": True}, {"num_logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 20}, {"num_logprobs": 20}),
        ({"logprobs": False}, {"num_logprobs": None}),
        ({"prompt_logprobs": 2}, {"num_prompt_logprobs": 2}),
        ({"min_tokens": 3}, {"min_tokens": 3, "forbidden_before_min": (END_ID, TURN_END_ID)}),
        (
            {"min_tokens": 3, "ignore_eos": True, "stop_token_ids": [9]},
            {"min_tokens": 3, "forbidden_before_min": (9,)},
        ),
    ],
)
@pytest.mark.parametrize("path", ["chat/completions", "completions"])
def test_sampling_fields_arrive(ask: Asker, path: str, sent: dict[str, Any], expected: dict[str, Any]) -> None:
    if path == "completions":
        sent = {"prompt": "a"} | sent
        if "logprobs" in sent:
            sent["logprobs"] = sent.pop("top_logprobs", 0) if sent["logprobs"] else None
    sampling = asdict(ask(path, **sent).sampling)
    if "seed" not in expected:
        del sampling["seed"]
    assert sampling == {name: value for name, value in asdict(SamplingParams()).items() if name in sampling} | expected


@pytest.mark.parametrize(("path", "prompt"), [("chat/completions", {}), ("completions", {"prompt": "a"})])
def test_ending_fields_and_the_rest_arrive(ask: Asker, path: str, prompt: dict[str, Any]) -> None:
    assert ask(path, **prompt, ignore_eos=True, stop_token_ids=[9]).stop.stop_token_ids == {9}
    assert ask(path, **prompt, max_tokens=3).stop.max_tokens == 3
    assert ask(path, **prompt, max_tokens=5, min_tokens=5).stop.min_tokens == 5
    request = ask(path, **prompt, n=3, priority=-5, cache_salt="tenant")
    assert (request.num_sequences, request.priority, request.namespace) == (3, -5, b"salt:tenant")


def test_openais_newer_name_of_max_tokens_arrives(ask: Asker) -> None:
    assert ask(max_completion_tokens=4).stop.max_tokens == 4


def test_echo_scores_the_prompt_as_far_as_logprobs_asks(ask: Asker) -> None:
    assert ask("completions", prompt="ab", echo=True, logprobs=3, max_tokens=0).sampling.num_prompt_logprobs == 3
    both = ask("completions", prompt="ab", echo=True, logprobs=3, prompt_logprobs=5, max_tokens=1)
    assert both.sampling.num_prompt_logprobs == 5
    assert ask("completions", prompt="ab", logprobs=3, max_tokens=1).sampling.num_prompt_logprobs is None


def test_token_ids_are_sent_as_they_are(ask: Asker) -> None:
    assert list(ask("completions", prompt=[5, 6, 7], max_tokens=1).prompt) == [5, 6, 7]
    assert list(ask("completions", prompt=[[8, 9]], max_tokens=1).prompt) == [8, 9]


def test_unseeded_requests_differ_and_follow_the_servers_seed(ask: Asker, tmp_path: Path) -> None:
    assert len({ask(max_tokens=1).sampling.seed for _ in range(4)}) == 4
    seeds = []
    for _ in range(2):
        server = wait_until_ready(launch({"seed": 7}, {"requests_log": str(tmp_path / "log")}))
        seeds.append([asked(server, tmp_path / "log", "chat/completions", {"max_tokens": 1}).sampling.seed])
        assert server.stop() == 0
    assert seeds[0] == seeds[1]
