"""What operators turn on: liveness by steps, timeouts, keys and their limits, CORS, a unix socket, keep-alive."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from running_server import RunningServer
from scripted_text import byte_ids

COMPLETION = {"model": "scripted", "prompt": "a", "max_tokens": 50}
HANG = {str(byte_ids("h")[0]): "hang"}


def root(server: RunningServer) -> str:
    return server.url.removesuffix("/v1")


def wait_until(is_true: Callable[[], bool], within_s: float) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_an_engine_that_hangs_is_not_live_and_is_replaced(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"live_timeout_s": 2.0}, faults=HANG)
    answers: list[tuple[float, httpx.Response]] = []
    asked_s = time.monotonic()

    def ask() -> None:
        response = server.post("completions", COMPLETION | {"prompt": "h"})
        answers.append((time.monotonic() - asked_s, response))

    thread = threading.Thread(target=ask)
    thread.start()
    seen = []
    while not answers:
        live = httpx.get(f"{root(server)}/live")
        seen.append((time.monotonic() - asked_s, live.status_code))
        time.sleep(0.02)
    thread.join()
    took_s, response = answers[0]
    assert 2.0 < took_s < 4.0
    assert (response.status_code, response.json()["error"]["message"]) == (503, "the engine process died")
    assert all(status == 200 for at_s, status in seen if at_s < 1.9)
    assert 503 in {status for _, status in seen}
    wait_until(lambda: httpx.get(f"{root(server)}/ready").status_code == 200, 10)
    assert httpx.get(f"{root(server)}/live").json() == {"status": "ready"}
    assert server.post("completions", COMPLETION).status_code == 200


def test_a_slow_engine_that_makes_steps_stays_live(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"live_timeout_s": 0.4}, step_s=0.1)
    pid = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    assert server.post("completions", COMPLETION | {"max_tokens": 30}).status_code == 200
    time.sleep(1.0)
    assert httpx.get(f"{root(server)}/live").status_code == 200
    assert Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text() == pid


def test_a_request_ends_at_its_timeout_and_leaves_nothing(
    start_server: Callable[..., RunningServer], journal: Path
) -> None:
    server = start_server({"request_timeout_s": 0.5}, step_s=0.01, journal=str(journal))
    for body in (COMPLETION | {"max_tokens": 3000}, COMPLETION | {"max_tokens": 3000, "n": 3}):
        asked_s = time.monotonic()
        response = server.post("completions", body)
        assert 0.5 <= time.monotonic() - asked_s < 1.0
        assert (response.status_code, response.json()["error"]["code"]) == (504, "request_timeout")
        assert "0.5 s after its arrival (--request-timeout)" in response.json()["error"]["message"]
    stream = server.post("completions", COMPLETION | {"max_tokens": 3000, "stream": True}).text.split("\n\n")
    assert '"code":"request_timeout"' in stream[-3]
    assert stream[-2:] == ["data: [DONE]", ""]
    assert server.post("completions", COMPLETION | {"max_tokens": 10}).status_code == 200
    cancelled = [int(line.split()[1]) for line in journal.read_text().splitlines()]
    assert sum(cancelled) == 1 + 3 + 1


def test_keys_come_from_the_command_line_and_from_a_file(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nfirst-key\n\n  second-key  \n")
    code = "import sys; from paceline.server.keys import read_key_file; print(read_key_file(sys.argv[1]))"
    result = subprocess.run([sys.executable, "-c", code, keys], capture_output=True, text=True, check=True)
    assert result.stdout == "('first-key', 'second-key')\n"
    for text, complaint in (("# none\n", "1 to 1000 keys, one a line, got 0"), ("schlüssel\n", "not ASCII")):
        keys.write_text(text)
        command = [sys.executable, "-m", "paceline.cli", "serve", "--api-key-file", str(keys)]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert refused.returncode == 2
        assert complaint in refused.stderr
        assert "schl" not in refused.stderr


def test_every_key_is_accepted_and_no_other(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["alpha", "beta"]})
    for key, status in (("alpha", 200), ("beta", 200), ("gamma", 401), ("alph", 401)):
        headers = {"authorization": f"Bearer {key}"}
        assert server.post("completions", COMPLETION, headers=headers).status_code == status
    assert server.post("completions", COMPLETION).status_code == 401
    assert httpx.get(f"{root(server)}/ready").status_code == 200


def test_requests_a_minute_are_limited_for_each_key(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["alpha", "beta"], "rate_limit_requests": 3})
    alpha, beta = ({"authorization": f"Bearer {key}"} for key in ("alpha", "beta"))
    answers = [server.post("completions", COMPLETION, headers=alpha) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0"]
    refused = answers[3]
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert 1 <= int(refused.headers["retry-after"]) <= 20
    assert server.post("completions", COMPLETION, headers=beta).status_code == 200
    wrong = server.post("completions", COMPLETION, headers={"authorization": "Bearer gamma"})
    assert wrong.status_code == 401
    assert httpx.get(f"{server.url}/models", headers=alpha).status_code == 200
    with server.openai(api_key="alpha") as client, pytest.raises(openai.RateLimitError):
        client.completions.create(model="scripted", prompt="a", max_tokens=1)


def test_tokens_a_minute_are_reserved_and_settled(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"rate_limit_tokens": 1000}, step_s=0.001)
    # One prompt token. Asked for 500, ended by a stop string after three: the rest comes back.
    stopped = server.post("completions", COMPLETION | {"max_tokens": 500, "stop": " six"})
    used = stopped.json()["usage"]["total_tokens"]
    assert used < 10
    assert int(stopped.headers["x-ratelimit-limit-tokens"]) == 1000
    full = server.post("completions", COMPLETION | {"max_tokens": 400, "ignore_eos": True})
    assert full.json()["usage"]["total_tokens"] == 401
    refused = server.post("completions", COMPLETION | {"max_tokens": 900})
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "come to 901" in refused.json()["error"]["message"]
    assert int(refused.headers["retry-after"]) >= (901 - (1000 - 401 - used)) * 60 // 1000 - 1
    assert server.post("completions", COMPLETION | {"max_tokens": 400}).status_code == 200


def test_embeddings_take_from_the_same_minute(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"rate_limit_tokens": 100, "request_timeout_s": 5.0})
    answers = [server.post("embeddings", {"model": "scripted", "input": "a" * 40}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[1].headers["x-ratelimit-remaining-tokens"] in ("20", "21")


def test_pages_of_allowed_origins_may_call(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"allowed_origins": ["https://app.example"], "api_keys": ["alpha"]})
    url = f"{server.url}/completions"
    asking = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    preflight = httpx.options(url, headers={"origin": "https://app.example"} | asking)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    refused = server.post("completions", COMPLETION, headers={"origin": "https://app.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example"
    assert "x-request-id" in refused.headers["access-control-expose-headers"]
    other = httpx.options(url, headers={"origin": "https://evil.example"} | asking)
    assert "access-control-allow-origin" not in other.headers


def test_no_origin_is_allowed_unless_named(server: RunningServer) -> None:
    answer = server.post("completions", COMPLETION, headers={"origin": "https://app.example"})
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_unix_socket_serves_and_goes_with_the_server(
    start_server: Callable[..., RunningServer], tmp_path: Path
) -> None:
    path = tmp_path / "paceline.sock"
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(str(path))
    server = start_server({"uds": str(path)})
    assert server.url == f"unix:{path}"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://paceline") as client:
        assert client.get("/ready").status_code == 200
        assert client.post("/v1/completions", json=COMPLETION).json()["usage"]["completion_tokens"] == 50
        command = [sys.executable, "-m", "paceline.cli", "serve", "--uds", str(path)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert (second.returncode, second.stderr.count("\n")) == (2, 1)
        assert "Address already in use" in second.stderr
        assert client.get("/ready").status_code == 200
    assert server.stop() == 0
    assert not path.exists()


def test_a_low_limit_of_open_files_is_raised() -> None:
    code = (
        "import resource; from paceline.server.listen import allow_descriptors\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)); allow_descriptors()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0] == (min(hard, 65536) if hard > 0 else 65536))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "True\n"


def test_a_file_is_never_replaced_by_a_socket(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    command = [sys.executable, "-m", "paceline.cli", "serve", "--uds", str(path)]
    assert subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 2
    assert path.read_text() == "data"


def test_a_stream_that_waits_long_begins_without_news(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=17.0)
    body = COMPLETION | {"max_tokens": 1, "stream": True}
    asked_s = time.monotonic()
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=60) as response:
        began_s = time.monotonic() - asked_s
        lines = [line for line in response.iter_lines() if line]
    # Nothing was known for 15 s, so the stream began without: a proxy sees bytes, and comments from then on.
    assert 14.9 < began_s < 16.9
    assert time.monotonic() - asked_s > 17.0
    assert lines[-1] == "data: [DONE]"
    assert any('"finish_reason":"length"' in line for line in lines)


def test_sigterm_to_every_process_still_drains(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.01)
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    body = COMPLETION | {"max_tokens": 100, "stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=20) as response:
        lines = response.iter_lines()
        next(lines)
        for pid in (*map(int, children), server.process.pid):
            os.kill(pid, 15)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert server.process.wait(5) == 0


def test_a_request_that_was_still_being_read_is_drained_too(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"shutdown_timeout_s": 5.0}, step_s=0.001)
    body = json.dumps(COMPLETION).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head + body[:10])
        time.sleep(0.3)
        server.process.send_signal(15)
        time.sleep(0.3)
        connection.sendall(body[10:])
        data = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(65536):
                data += piece
    assert data.startswith(b"HTTP/1.1 200"), data
    assert b'"completion_tokens":50' in data
    assert server.process.wait(5) == 0
