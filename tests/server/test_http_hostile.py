"""B077: one small request must not take the memory or the time of the server, nor delay a running stream."""

import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import pytest

from running_server import RunningServer

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a"}]}
MAX_ANSWER_S = 0.1
MAX_GROWTH_KIB = 50 * 1024

HOSTILE = {
    "n": {"n": 5_000_000},
    "best_of": {"best_of": 10**9},
    "top_logprobs": {"logprobs": True, "top_logprobs": 10**9},
    "prompt_logprobs": {"prompt_logprobs": -1, "messages": [{"role": "user", "content": "a" * 3000}]},
    "max_tokens": {"max_tokens": 10**12},
    "stop": {"stop": ["x"] * 10**5},
    "logit_bias": {"logit_bias": {str(i): 1 for i in range(10**5)}},
    "bad_words": {"bad_words": ["x" * 10**6]},
    "stop_token_ids": {"stop_token_ids": [1] * 10**6},
    "messages": {"messages": [{"role": "user", "content": "a"}] * 10**5},
    "temperature": {"temperature": 10**300},
    "unknown": {"x" * 10**6: 1},
}


def raw_body(name: str) -> bytes:
    nested = {
        "deep tools": b"tools",
        "deep metadata": b"metadata",
        "deep unknown": b"zzz",
        "deep messages": b"messages",
    }
    if name in nested:
        return b'{"model":"scripted","%b":%b}' % (nested[name], b"[" * 10**5 + b"]" * 10**5)
    if name == "long number":
        return b'{"model":"scripted","n":%b}' % (b"9" * 10**6)
    return json.dumps(CHAT | HOSTILE[name]).encode()


def memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def post_timed(server: RunningServer, path: str, body: bytes) -> tuple[httpx.Response, float]:
    """The answer and the time from the last byte of the body to it, by a bare socket."""
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head.encode() + body)
        sent_s = time.perf_counter()
        connection.recv(1, socket.MSG_PEEK)
        took_s = time.perf_counter() - sent_s
        data = b""
        while piece := connection.recv(65536):
            data += piece
    lines, _, content = data.partition(b"\r\n\r\n")
    return httpx.Response(int(lines.split()[1]), content=content), took_s


@pytest.mark.parametrize(
    "name", [*HOSTILE, "deep tools", "deep metadata", "deep unknown", "deep messages", "long number"]
)
def test_b077_a_hostile_body_is_refused_fast_and_cheaply(server: RunningServer, name: str) -> None:
    body = raw_body(name)
    post_timed(server, "chat/completions", body)
    before_kib = memory_kib(server.process.pid)
    response, took_s = min((post_timed(server, "chat/completions", body) for _ in range(3)), key=lambda item: item[1])
    assert response.status_code in (400, 413), response.text
    assert len(response.json()["error"]["message"]) < 400
    assert took_s < MAX_ANSWER_S
    assert memory_kib(server.process.pid) - before_kib < MAX_GROWTH_KIB


def test_b077_too_many_prompts(server: RunningServer) -> None:
    for change in ({"prompt": ["a"] * 10**5}, {"prompt": ["a"] * 100, "n": 100}, {"prompt": [[1]] * 10**5}):
        body = json.dumps({"model": "scripted"} | change).encode()
        response, took_s = post_timed(server, "completions", body)
        assert response.status_code == 400
        assert "2048" in response.json()["error"]["message"]
        assert took_s < MAX_ANSWER_S


@pytest.mark.parametrize("framing", ["declared", "chunked"])
def test_b077_a_huge_body_is_not_read_into_memory(server: RunningServer, framing: str) -> None:
    before_kib = memory_kib(server.process.pid)
    num_pieces, piece = 200, b" " * 2**20
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    head += (
        "Transfer-Encoding: chunked\r\n\r\n"
        if framing == "chunked"
        else f"Content-Length: {num_pieces * len(piece)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(head.encode())
        answer = b""
        try:
            for _ in range(num_pieces):
                connection.sendall(b"100000\r\n%b\r\n" % piece if framing == "chunked" else piece)
        except OSError:
            pass  # the server closed the connection: so much the better
        try:
            answer = connection.recv(65536)
        except OSError:
            assert framing == "chunked"
    assert not answer or answer.startswith(b"HTTP/1.1 413 ")
    assert memory_kib(server.process.pid) - before_kib < MAX_GROWTH_KIB


def test_b077_a_running_stream_keeps_its_pace(start_server: Callable[..., RunningServer], tmp_path: Path) -> None:
    server = start_server(step_s=0.01)
    usual_s = largest_gap_s(server, None)
    attack = folder_of(tmp_path / "hostile", map(raw_body, HOSTILE))
    assert min(largest_gap_s(server, attack) for _ in range(3)) < 2 * max(usual_s, 0.025)


def test_b077_a_running_stream_of_the_real_model_keeps_its_pace(smol: RunningServer, tmp_path: Path) -> None:
    """The model's threads take every core, so any client beside it costs the stream a little: what is usual is
    measured beside one that sends as many small bodies, refused likewise. One of three pairs must hold.
    """
    attack = folder_of(tmp_path / "hostile", map(raw_body, HOSTILE))
    control = folder_of(tmp_path / "control", [json.dumps(CHAT | {"n": 0}).encode()] * len(HOSTILE))
    pairs = ((largest_gap_s(smol, attack), largest_gap_s(smol, control)) for _ in range(3))
    seen = []
    for hostile_s, usual_s in pairs:
        seen.append((hostile_s, usual_s))
        if hostile_s < 2 * max(usual_s, 0.025):
            return
    raise AssertionError(f"(largest gap under attack, beside small bodies): {seen}")


def folder_of(path: Path, bodies: Iterable[bytes]) -> Path:
    path.mkdir()
    for index, body in enumerate(bodies):
        (path / str(index)).write_bytes(body)
    return path


def largest_gap_s(server: RunningServer, attack: Path | None) -> float:
    """The largest gap between events of a stream while another process posts the bodies of a folder, one by one.

    150 events at least, and on until the last body is answered.
    """
    (model,) = httpx.get(f"{server.url}/models").json()["data"]
    body = {"model": model["id"], "prompt": "a", "max_tokens": 3000, "stream": True, "ignore_eos": True}
    arrivals_s: list[float] = []
    attackers: list[subprocess.Popen[bytes]] = []
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=10) as response:
        for line in response.iter_lines():
            if line:
                arrivals_s.append(time.perf_counter())
            if attack and len(arrivals_s) == 5 and not attackers:
                attackers.append(subprocess.Popen([sys.executable, "-c", ATTACK, server.url, str(attack)]))
            if len(arrivals_s) >= 150 and all(attacker.poll() is not None for attacker in attackers):
                break
    assert all(attacker.wait(20) == 0 for attacker in attackers)
    return max(later - earlier for earlier, later in itertools.pairwise(arrivals_s))


ATTACK = """
import pathlib, sys, urllib.error, urllib.request
for file in pathlib.Path(sys.argv[2]).iterdir():
    try:
        urllib.request.urlopen(sys.argv[1] + "/chat/completions", file.read_bytes())
    except urllib.error.HTTPError as error:
        assert error.code in (400, 413)
        error.close()
    else:
        raise AssertionError(file)
"""
