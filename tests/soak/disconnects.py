"""Clients that go away at every stage of a request, against the real model: nothing of them may stay.

    PYTHONPATH=tests python -m soak.disconnects --clients 1000

Stages: inside the headers, inside the body, in the queue, in prefill, in decode, at the last token before the end is
read. Afterwards every gauge is at zero, descriptors and threads are as before, and a reference answer is the same.
"""

import argparse
import asyncio
import json
import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

from running_server import RunningServer, serve_model
from soak.footprint import Footprint, footprint, gauges

STAGES = ("headers", "body", "queue", "prefill", "decode", "last token")
CONCURRENCY = 24
MODEL = "smollm2-135m"
SERVER = (MODEL, "--kv-memory", "64MiB", "--max-num-seqs", "4")
REFERENCE = {"model": MODEL, "prompt": "The sea was", "max_tokens": 40, "temperature": 0, "seed": 1}
SETTLE_S = 10.0
MAX_GROWTH_KIB = 32 * 1024
# The threads that encode prompts are started as they are first needed, up to asyncio's own limit.
POOL_THREADS = min(32, (os.cpu_count() or 1) + 4)


@dataclass(frozen=True)
class Report:
    """What came of a run."""

    stages: Counter[str]
    before: Footprint
    after: Footprint


def request_bytes(body: dict[str, Any]) -> bytes:
    data = json.dumps({"model": MODEL} | body).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return f"{head}\r\n\r\n".encode() + data


async def leave(port: int, stage: str, draw: random.Random) -> None:
    """Be one client that goes away at a stage."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        num_prompt = 600 if stage == "prefill" else 5
        prompt = [draw.randrange(1000, 40_000) for _ in range(num_prompt)]
        num_tokens = {"last token": 6}.get(stage, 300)
        data = request_bytes({"prompt": prompt, "max_tokens": num_tokens, "stream": True, "ignore_eos": True})
        if stage == "headers":
            data = data[: draw.randrange(10, 60)]
        elif stage == "body":
            data = data[:-10]
        writer.write(data)
        await writer.drain()
        if stage in ("decode", "last token"):
            await read_events(reader, num_tokens if stage == "last token" else draw.randrange(1, 6))
        else:
            await asyncio.sleep(draw.uniform(0.0, 0.05))
    finally:
        # Aborting sends a reset where a close would send the end of the stream: both happen.
        if draw.random() < 0.5:
            writer.transport.abort()
        writer.close()


async def read_events(reader: asyncio.StreamReader, count: int) -> None:
    """Read that many events, or up to the last: one may carry several tokens, and a token may show nothing yet."""
    while count:
        line = await asyncio.wait_for(reader.readline(), 120)
        assert line, "the server closed the stream"
        count = 0 if b'"finish_reason":"' in line else count - line.startswith(b"data: {")


async def run_clients(port: int, num_clients: int, seed: int) -> Counter[str]:
    """All of them, some at a time; every stage in turn."""
    draw = random.Random(seed)
    plan = [STAGES[index % len(STAGES)] for index in range(num_clients)]
    draw.shuffle(plan)
    gate = asyncio.Semaphore(CONCURRENCY)

    async def one(stage: str) -> None:
        async with gate:
            await leave(port, stage, draw)

    await asyncio.gather(*(one(stage) for stage in plan))
    return Counter(plan)


def wait_until_quiet(server: RunningServer) -> dict[str, float]:
    """The gauges once all are zero, or after a while whatever they are."""
    deadline_s = time.monotonic() + SETTLE_S
    while any(values := gauges(server).values()) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return gauges(server) if any(values) else dict.fromkeys(gauges(server), 0.0)


def run(server: RunningServer, num_clients: int, seed: int = 0) -> Report:
    """Let clients leave, and check that nothing of them stays."""
    reference = server.post("completions", REFERENCE).json()["choices"]
    asyncio.run(run_clients(server.port, max(num_clients // 10, 24), seed + 1))
    wait_until_quiet(server)
    before = footprint(server)
    stages = asyncio.run(run_clients(server.port, num_clients, seed))
    left = wait_until_quiet(server)
    assert not any(left.values()), f"gauges stay up: {left}"
    assert server.post("completions", REFERENCE).json()["choices"] == reference
    after = footprint(server)
    assert after.num_descriptors <= before.num_descriptors + 2, (before, after)
    assert after.num_threads <= before.num_threads + POOL_THREADS, (before, after)
    assert after.memory_kib <= before.memory_kib + MAX_GROWTH_KIB, (before, after)
    return Report(stages, before, after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    server = serve_model(*SERVER)
    try:
        started_s = time.monotonic()
        report = run(server, arguments.clients, arguments.seed)
        took_s = time.monotonic() - started_s
    finally:
        server.stop()
    print(f"{arguments.clients} clients in {took_s:.0f} s: {dict(report.stages)}")
    print(f"before {report.before}, after {report.after}")


if __name__ == "__main__":
    main()
