"""The log: one line a request, one every ten seconds while there is traffic; nothing of what was said, no key."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.engine.contract import EngineCounters, EngineGauges
from paceline.server.pulse import Beat, has_traffic, pulse_fields
from running_server import RunningServer, launch, wait_until_ready
from scripted_text import byte_ids

SECRET = "a-prompt-nobody-logs"
COMPLETION = {"model": "scripted", "prompt": SECRET, "max_tokens": 5}
KEY = "sk-nobody-logs-me"


@pytest.fixture
def logging_server(tmp_path: Path) -> Iterator[Callable[..., tuple[RunningServer, Path]]]:
    """Starts a server whose log goes to a file."""
    started: list[RunningServer] = []
    path = tmp_path / "log"

    def start(serve: dict[str, Any], **engine: Any) -> tuple[RunningServer, Path]:
        with path.open("w") as file:
            started.append(wait_until_ready(launch(serve, engine, log=file)))
        return started[-1], path

    yield start
    for server in started:
        server.stop()


def lines_of(path: Path, kind: str, count: int) -> list[dict[str, Any]]:
    """The JSON lines of one kind, once there are `count` of them."""
    deadline_s = time.monotonic() + 15
    while True:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found = [line for line in lines if line["message"] == kind]
        if len(found) >= count or time.monotonic() > deadline_s:
            assert len(found) == count, lines
            return found
        time.sleep(0.05)


def test_a_finished_request_is_one_json_line(
    logging_server: Callable[..., tuple[RunningServer, Path]],
) -> None:
    server, log = logging_server({"log_format": "json", "api_keys": ["other", KEY]}, step_s=0.01)
    headers = {"authorization": f"Bearer {KEY}", "x-request-id": "trace-7"}
    answer = server.post("completions", COMPLETION | {"n": 2}, headers=headers)
    assert answer.headers["x-request-id"] == "trace-7"
    httpx.get(server.url.removesuffix("/v1") + "/ready")
    (line,) = lines_of(log, "request", 1)
    facts = {name: line[name] for name in ("request_id", "status", "model", "key", "path", "finish_reasons")}
    assert facts == {
        "request_id": "trace-7", "status": 200, "model": "scripted", "key": 2, "path": "/v1/completions",
        "finish_reasons": ["length", "length"],
    }  # fmt: skip
    usage = answer.json()["usage"]
    assert (line["prompt_tokens"], line["completion_tokens"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert line["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert 0.005 < line["ttft_s"] < line["duration_s"] < 5
    assert KEY not in log.read_text()
    assert SECRET not in log.read_text()


def test_errors_timeouts_and_clients_gone_are_told(
    logging_server: Callable[..., tuple[RunningServer, Path]],
) -> None:
    server, log = logging_server({"log_format": "json", "request_timeout_s": 1.0}, step_s=0.01)
    assert server.post("completions", {"model": "none"}, headers={"x-request-id": 'no "way"'}).status_code == 400
    with contextlib.suppress(httpx.ReadTimeout):
        httpx.post(f"{server.url}/completions", json=COMPLETION | {"max_tokens": 3000}, timeout=0.2)
    server.post("completions", COMPLETION | {"max_tokens": 3000, "stream": True})
    bad, gone, late = lines_of(log, "request", 3)
    assert bad["status"] == 400
    assert bad["request_id"].startswith("req-")
    assert (gone["status"], gone["client_gone"]) == (None, True)
    assert 0 < gone["completion_tokens"] < 100
    assert (late["status"], late["error"], late["finish_reasons"]) == (200, "request_timeout", [])
    assert late["completion_tokens"] > 50


def test_plain_lines_are_for_people(logging_server: Callable[..., tuple[RunningServer, Path]]) -> None:
    server, log = logging_server({}, faults={str(byte_ids("x")[0]): "exit"})
    server.post("completions", COMPLETION, headers={"x-request-id": "one"})
    server.post("completions", COMPLETION | {"prompt": "x"}, headers={"x-request-id": "two"})
    text = log.read_text()
    first = next(line for line in text.splitlines() if "request_id=one" in line)
    assert " INFO request " in first
    assert " status=200 " in first
    assert "finish_reasons=length" in first
    assert " ERROR the engine process ended with code 9; starting another in 0.5 s" in text
    assert "error=unavailable" in next(line for line in text.splitlines() if "request_id=two" in line)


def test_a_fault_of_ours_is_logged_with_the_requests_id(
    logging_server: Callable[..., tuple[RunningServer, Path]],
) -> None:
    server, log = logging_server({"log_format": "json"})
    answer = server.post("completions", COMPLETION, headers={"x-request-id": "mine"})
    assert answer.status_code == 200
    unknown = httpx.get(f"{server.url}/nowhere")
    assert unknown.status_code == 404
    assert unknown.headers["x-request-id"].startswith("req-")
    assert [line["status"] for line in lines_of(log, "request", 2)] == [200, 404]


def test_the_pulse_beats_while_there_is_traffic(
    logging_server: Callable[..., tuple[RunningServer, Path]],
) -> None:
    server, log = logging_server({"log_format": "json"}, step_s=0.02)
    server.post("completions", COMPLETION | {"max_tokens": 400})
    (beat,) = lines_of(log, "pulse", 1)
    assert beat["decode_tokens_per_s"] == pytest.approx(40, rel=0.4)
    assert {"running", "waiting", "kv_use_percent", "prefill_tokens_per_s", "preemptions", "hit_percent"} <= set(beat)


def gauges(num_running: int, counters: EngineCounters) -> EngineGauges:
    return EngineGauges(3, 0, num_running, 25, 10, 200, counters)


def test_a_pulse_is_the_difference_of_two_beats() -> None:
    before = EngineCounters(num_steps=10, num_prompt_tokens=100, num_generated_tokens=50, num_preemptions=1)
    after = EngineCounters(
        num_steps=30, num_prompt_tokens=600, num_queried_tokens=500, num_cached_tokens=200, num_recomputed_tokens=60,
        num_generated_tokens=250, num_preemptions=3,
    )  # fmt: skip
    assert pulse_fields(Beat(100.0, gauges(1, before)), Beat(110.0, gauges(4, after))) == {
        "running": 4, "waiting": 3, "kv_use_percent": 12.5, "prefill_tokens_per_s": 36.0, "decode_tokens_per_s": 20.0,
        "preemptions": 2, "hit_percent": 40.0,
    }  # fmt: skip


def test_an_idle_server_has_no_pulse() -> None:
    idle, busy = EngineCounters(num_steps=10), EngineCounters(num_steps=11)
    beats = [Beat(0.0, replace(gauges(0, counters), num_waiting=0)) for counters in (idle, busy)]
    assert not has_traffic(beats[0], beats[0])
    assert has_traffic(beats[0], beats[1])
    assert not has_traffic(beats[1], beats[0]), "a new engine begins anew"
    assert has_traffic(beats[0], Beat(1.0, gauges(1, idle))), "a hanging engine has work"
