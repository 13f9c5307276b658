"""Start, readiness, a dying engine, shutdown: what probes and clients see, and what is left behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from running_server import RunningServer, launch
from scripted_text import SCRIPT_TEXT, byte_ids

COMPLETION = {"model": "scripted", "prompt": "a", "max_tokens": 50}


@pytest.fixture
def launched() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Starts processes and makes sure that they end."""
    processes: list[subprocess.Popen[str]] = []

    def start(serve: dict[str, Any], engine: dict[str, Any]) -> "subprocess.Popen[str]":
        processes.append(launch(serve, engine))
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def engine_pids(server_pid: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{server_pid}/task/{server_pid}/children").read_text().split()]


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
        assert time.monotonic() < deadline_s, f"process {pid} is still there"
        time.sleep(0.02)


def test_b087_not_ready_before_the_model_is(launched: Callable[..., "subprocess.Popen[str]"]) -> None:
    port = free_port()
    launched({"port": port}, {"load_s": 5.0})
    root = f"http://127.0.0.1:{port}"
    seen = set()
    with httpx.Client(base_url=root, timeout=5) as client:
        while True:
            with contextlib.suppress(httpx.TransportError):
                health = client.get("/health")
                seen.add(health.status_code)
                if health.status_code == 200:
                    break
                models = client.get("/v1/models")
                chat = client.post("/v1/completions", json=COMPLETION)
                if chat.status_code != 200:
                    assert models.status_code == 503, "a model is listed before it can be used"
                    assert (chat.status_code, chat.json()["error"]["code"]) == (503, "unavailable")
                    assert int(chat.headers["retry-after"]) >= 1
                    assert client.get("/live").json() == {"status": "loading"}
            time.sleep(0.05)
        assert seen == {503, 200}
        assert client.post("/v1/completions", json=COMPLETION).status_code == 200


def test_b087_a_port_in_use_is_one_clear_line(launched: Callable[..., "subprocess.Popen[str]"]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = launched({"port": port}, {"load_s": 30})
        assert process.wait(5) != 0


@pytest.mark.parametrize("seconds", [0.3, 0.6, 2.0])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_loading_ends_the_start(
    launched: Callable[..., "subprocess.Popen[str]"], seconds: float, number: signal.Signals
) -> None:
    process = launched({}, {"load_s": 30})
    deadline_s = time.monotonic() + 5
    while not (pids := engine_pids(process.pid)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    time.sleep(seconds)
    process.send_signal(number)
    assert process.wait(5) == 0
    wait_until_gone(pids[0])


def test_b087_a_broken_model_ends_the_start(launched: Callable[..., "subprocess.Popen[str]"]) -> None:
    port = free_port()
    process = launched({"port": port}, {"load_error": "model.gguf is cut off"})
    assert process.wait(5) != 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/health")


def test_a_dead_engine_fails_its_requests_and_is_replaced(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.01)
    root = server.url.removesuffix("/v1")
    body = COMPLETION | {"max_tokens": 4000, "stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=5) as response:
        lines = response.iter_lines()
        next(lines)
        (pid,) = engine_pids(server.process.pid)
        os.kill(pid, signal.SIGKILL)
        rest = [line for line in lines if line]
    assert '"code":"unavailable"' in rest[-2]
    assert rest[-1] == "data: [DONE]"
    assert httpx.get(f"{root}/health").status_code == 503
    deadline_s = time.monotonic() + 10
    while httpx.get(f"{root}/health").status_code != 200:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert server.post("completions", COMPLETION).status_code == 200


def test_a_request_that_kills_the_engine_gets_503(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(faults={str(byte_ids("x")[0]): "exit"})
    response = server.post("completions", COMPLETION | {"prompt": "x"})
    assert (response.status_code, response.json()["error"]["message"]) == (503, "the engine process died")


def run_requests(
    server: RunningServer, journal: Path, count: int, max_tokens: int
) -> tuple[list[threading.Thread], list[str]]:
    """Streams and whole answers, once all of them run side by side; and the answers of those that have ended."""
    ends: list[str] = []

    def ask(is_streamed: bool) -> None:
        body = COMPLETION | {"max_tokens": max_tokens, "stream": is_streamed}
        ends.append(httpx.post(f"{server.url}/completions", json=body, timeout=20).text)

    threads = [threading.Thread(target=ask, args=(index % 2 == 0,)) for index in range(count)]
    for thread in threads:
        thread.start()
    while journal.read_text().splitlines()[-1:] != [f"{count} 0"]:
        time.sleep(0.02)
    return threads, ends


def shown_text(answer: str) -> str:
    """The text of a whole answer or of a stream."""
    chunks = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith(("data: {", "{"))]
    return "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)


def test_b085_sigterm_lets_running_requests_finish(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server({"shutdown_timeout_s": 20.0}, step_s=0.02, journal=str(journal))
    (pid,) = engine_pids(server.process.pid)
    threads, ends = run_requests(server, journal, 8, 150)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    root = server.url.removesuffix("/v1")
    assert httpx.get(f"{root}/ready").status_code == 503
    refused = server.post("completions", COMPLETION)
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
    assert refused.elapsed.total_seconds() < 0.1
    for thread in threads:
        thread.join()
    finished_s = time.monotonic()
    assert server.process.wait(5) == 0
    assert time.monotonic() - finished_s < 1.5
    assert len(ends) == 8
    assert all('"finish_reason":"length"' in end for end in ends)
    assert all(shown_text(end).startswith(SCRIPT_TEXT * 6) for end in ends)
    wait_until_gone(pid)


def test_b085_the_drain_ends_with_an_error_event(start_server: Callable[..., RunningServer], journal: Path) -> None:
    server = start_server({"shutdown_timeout_s": 0.5}, step_s=0.02, journal=str(journal))
    threads, ends = run_requests(server, journal, 2, 3000)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(5) == 0
    for thread in threads:
        thread.join()
    assert all("shut down before this request was finished" in end for end in ends)
    assert len(ends) == 2


def test_b085_a_second_signal_quits_at_once(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.02)
    (pid,) = engine_pids(server.process.pid)
    with httpx.stream("POST", f"{server.url}/completions", json=COMPLETION | {"max_tokens": 3000, "stream": True}):
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(1) == 130
    wait_until_gone(pid)


def test_the_summary_says_what_may_be_asked_for(server: RunningServer) -> None:
    text = "\n".join(server.summary)
    pool, weights = "16,384 tokens in blocks of 16, bfloat16", "exactly as in the model file"
    for fact in ("scripted", "4,096 tokens", pool, weights, "8 sequences of 2,048", "1,000 tokens/s"):
        assert fact in text


def test_an_idle_server_uses_no_processor_to_speak_of(start_server: Callable[..., RunningServer]) -> None:
    server = start_server()
    pids = [server.process.pid, *engine_pids(server.process.pid)]

    def used_ticks() -> int:
        fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
        return sum(int(f[11]) + int(f[12]) for f in fields)

    before = used_ticks()
    time.sleep(2.0)
    assert used_ticks() - before <= 0.02 * os.sysconf("SC_CLK_TCK")
