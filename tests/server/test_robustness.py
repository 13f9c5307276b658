"""Things that go wrong under load, on the real model: a killed engine, clients that leave, a pool far too small.

Small runs; the large ones are in tests/soak (`make soak`).
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from running_server import RunningServer, serve_model
from scripted_text import byte_ids
from soak import disconnects, storm
from soak.footprint import engine_pids, gauges

STREAM = {"model": "smollm2-135m", "prompt": "The sea", "max_tokens": 1500, "ignore_eos": True, "stream": True}


@pytest.fixture
def serve() -> Iterator[Callable[..., RunningServer]]:
    """Starts `paceline serve` with options of its own and ends it."""
    started: list[RunningServer] = []

    def start(*arguments: str) -> RunningServer:
        started.append(serve_model(*arguments))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def under_load(server: RunningServer, num_clients: int) -> list[tuple[float, str]]:
    """Streams and whole answers in flight; kill the engine: (seconds from then to the end, the end) of each."""
    killed_s = 0.0
    has_begun = asyncio.Event()

    async def ask(index: int) -> tuple[float, str]:
        body = STREAM | {"stream": index % 2 == 0, "seed": index}
        async with client.stream("POST", f"{server.url}/completions", json=body) as response:
            text = ""
            async for piece in response.aiter_text():
                text += piece
                has_begun.set()
        return time.monotonic() - killed_s, text

    async with httpx.AsyncClient(timeout=60) as client:
        asking = [asyncio.ensure_future(ask(index)) for index in range(num_clients)]
        await asyncio.wait_for(has_begun.wait(), 60)
        await asyncio.sleep(0.5)
        (pid,) = engine_pids(server.process.pid)
        killed_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        return await asyncio.gather(*asking)


def test_a_killed_engine_under_load_costs_its_requests_and_nothing_else(
    serve: Callable[..., RunningServer],
) -> None:
    server = serve("smollm2-135m", "--kv-memory", "128MiB")
    (first_pid,) = engine_pids(server.process.pid)
    ends = asyncio.run(under_load(server, 16))
    assert len(ends) == 16
    assert all(took_s < 2.0 for took_s, _ in ends), ends
    assert all("the engine process died" in text for _, text in ends)
    root = server.url.removesuffix("/v1")
    deadline_s = time.monotonic() + 30
    while httpx.get(f"{root}/ready").status_code != 200:
        assert httpx.get(f"{root}/live").status_code == 200
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    answer = server.post("completions", STREAM | {"stream": False, "max_tokens": 5})
    assert answer.status_code == 200
    assert not any(gauges(server).values())
    (second_pid,) = engine_pids(server.process.pid)
    assert is_gone(first_pid)
    assert server.stop() == 0
    assert is_gone(second_pid)


def test_clients_that_leave_leave_nothing_behind(serve: Callable[..., RunningServer]) -> None:
    report = disconnects.run(serve(*disconnects.SERVER), 60)
    assert set(report.stages) == set(disconnects.STAGES)


def test_a_storm_on_a_tiny_pool_loses_nothing(serve: Callable[..., RunningServer]) -> None:
    tally = storm.run(serve(*storm.SERVER), 8)
    assert tally.num_preemptions > 0
    assert tally.outcomes["finished"] > 5
    assert tally.outcomes["left"] > 0


@pytest.mark.parametrize("stage", ["queue", "decode", "last token"])
def test_a_client_that_leaves_costs_at_most_one_more_step(
    start_server: Callable[..., RunningServer], journal: Path, stage: str
) -> None:
    server = start_server(step_s=0.05, journal=str(journal), script=byte_ids("abc"))

    async def one() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        num_tokens = 6 if stage == "last token" else 100
        body = {"model": "scripted", "prompt": "a", "max_tokens": num_tokens, "stream": True}
        writer.write(disconnects.request_bytes(body))
        if stage != "queue":
            await disconnects.read_events(reader, num_tokens if stage == "last token" else 2)
        writer.close()
        return len(journal.read_text().splitlines())

    for _ in range(3):
        seen = asyncio.run(one())
        time.sleep(0.5)
        # One step was running when the client left, and one may have begun before the news arrived.
        assert len(journal.read_text().splitlines()) <= seen + 2
        assert not any(gauges(server).values())
