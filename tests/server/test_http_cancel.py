"""Clients that go away: their sequences stop within a step, and nothing else does. The engine's journal tells."""

import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from running_server import RunningServer
from scripted_text import SCRIPT_TEXT

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "go on"}], "max_tokens": 4000, "ignore_eos": True}


def steps(journal: Path) -> list[tuple[int, int]]:
    """(sequences running, cancellations reported) of every step so far."""
    return [(int(a), int(b)) for a, b in (line.split() for line in journal.read_text().splitlines())]


def wait_until_idle(journal: Path, within_s: float) -> list[tuple[int, int]]:
    """The journal once it has stopped growing; it must stop within the time."""
    deadline_s = time.monotonic() + within_s
    seen = -1
    while (count := len(steps(journal))) != seen:
        assert time.monotonic() < deadline_s, "the engine goes on"
        seen = count
        time.sleep(0.1)
    return steps(journal)


def leave_after(server: RunningServer, seconds: float, body: dict[str, object]) -> None:
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{server.url}/chat/completions", json=body, timeout=seconds)


def test_b019_a_client_of_a_whole_answer_goes_away(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server(step_s=0.005, journal=str(journal))
    for times in range(1, 6):
        leave_after(server, 0.2, CHAT)
        left = wait_until_idle(journal, 1.0)
        assert len(left) < 400
        assert sum(cancelled for _, cancelled in left) == times
    finished = server.post("chat/completions", CHAT | {"max_tokens": 3})
    assert finished.json()["usage"]["completion_tokens"] == 3
    assert sum(cancelled for _, cancelled in wait_until_idle(journal, 1.0)) == 5, "a normal finish cancels nothing"


def test_b021_all_choices_of_a_request_are_cancelled(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server(step_s=0.005, journal=str(journal))
    for stop, num_running in ((None, 4), ([" five,"], 3)):
        body = CHAT | {"n": 4, "stream": True, "stop": stop}
        with httpx.stream("POST", f"{server.url}/chat/completions", json=body, timeout=5) as response:
            ended = set()
            for count, line in enumerate(response.iter_lines()):
                if line.startswith("data: {"):
                    choice = json.loads(line.removeprefix("data: "))["choices"][0]
                    ended |= {choice["index"]} if choice["finish_reason"] else set()
                if count > 20 and (stop is None or ended):
                    break
        left = wait_until_idle(journal, 1.0)
        assert left[-1] == (0, num_running)


def test_a_client_that_leaves_does_not_disturb_its_neighbour(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.005)
    body = {"model": "scripted", "prompt": "a", "max_tokens": 100, "stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=5) as response:
        lines = response.iter_lines()
        first = next(lines)
        leave_after(server, 0.1, CHAT)
        chunks = [json.loads(line[6:]) for line in (first, *lines) if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks).startswith(SCRIPT_TEXT * 3)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
