"""Pool pressure on the real model: a KV pool far too small for what is asked, mixed requests, clients that leave.

    PYTHONPATH=tests python -m soak.storm --minutes 10

Nothing may be lost (every request that stays ends once, each choice with a reason and the tokens it is billed for),
nothing hang (each ends within `PATIENCE_S`), nothing leak (gauges, descriptors, memory).
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from running_server import RunningServer, serve_model
from soak.disconnects import MODEL, REFERENCE, wait_until_quiet
from soak.footprint import footprint, metric

# 68 blocks of 16 tokens; two long requests fill it.
SERVER = (MODEL, "--kv-memory", "24MiB", "--max-num-seqs", "12", "--max-num-queued-reqs", "64")
NUM_WORKERS = 20
PATIENCE_S = 120.0
SAMPLE_S = 1.0
SETTLING_SHARE = 0.3
MAX_GROWTH_KIB = 16 * 1024
WORDS = "sea wind stone river light house long cold never always under over small great year night".split()


@dataclass
class Tally:
    """What came of a storm."""

    outcomes: Counter[str] = field(default_factory=Counter)
    num_tokens: int = 0
    memory_kib: list[int] = field(default_factory=list)
    num_preemptions: float = 0.0


def random_body(draw: random.Random) -> dict[str, Any]:
    """A request: short or long, alone or several choices, streamed or not, now and then impossible."""
    num_words = draw.choice((3, 20, 60, 200, 400))
    shared = " ".join(WORDS[: draw.choice((0, 8, 16))] * 4)
    body: dict[str, Any] = {
        "model": MODEL,
        "prompt": shared + " " + " ".join(draw.choices(WORDS, k=num_words)),
        "max_tokens": draw.choice((1, 10, 40, 120, 300)),
        "n": draw.choice((1, 1, 1, 2, 3)),
        "stream": draw.random() < 0.6,
        "temperature": draw.choice((0, 0.8, 1.2)),
        "seed": draw.randrange(1000),
        "ignore_eos": draw.random() < 0.7,
    }
    if draw.random() < 0.2:
        body["stop"] = [" the"]
    if draw.random() < 0.2:
        body["logprobs"] = draw.randrange(5)
    if draw.random() < 0.05:
        body["max_tokens"] = 100_000
    if body["stream"]:
        body["stream_options"] = {"include_usage": True}
    return body


def check_choices(body: dict[str, Any], reasons: dict[int, str], num_completion_tokens: int) -> None:
    """Every choice ended once and was billed for no more than it may have."""
    assert sorted(reasons) == list(range(body["n"])), f"choices {sorted(reasons)} of {body['n']} ended"
    assert set(reasons.values()) <= {"stop", "length"}, reasons
    most = body["n"] * body["max_tokens"]
    assert 1 <= num_completion_tokens <= most
    if set(reasons.values()) == {"length"}:
        assert num_completion_tokens == most


async def ask(client: httpx.AsyncClient, body: dict[str, Any]) -> tuple[str, int]:
    """One request to its end: (what came of it, its tokens)."""
    reasons: dict[int, str] = {}
    num_tokens = 0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        if response.status_code != 200:
            assert response.status_code == (400 if body["max_tokens"] == 100_000 else 429), response.status_code
            await response.aread()
            return str(response.status_code), 0
        if not body["stream"]:
            answer = json.loads(await response.aread())
            reasons = {choice["index"]: choice["finish_reason"] for choice in answer["choices"]}
            num_tokens = answer["usage"]["completion_tokens"]
        else:
            async for line in response.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                for choice in event["choices"]:
                    if choice["finish_reason"]:
                        assert choice["index"] not in reasons, "a choice ended twice"
                        reasons[choice["index"]] = choice["finish_reason"]
                num_tokens = event["usage"]["completion_tokens"] if event["usage"] else num_tokens
            assert line == "data: [DONE]" or not line, line
    check_choices(body, reasons, num_tokens)
    return "finished", num_tokens


async def work(client: httpx.AsyncClient, tally: Tally, draw: random.Random, until_s: float) -> None:
    """One client after another, a quarter of which leave."""
    while time.monotonic() < until_s:
        body = random_body(draw)
        patience_s = draw.uniform(0.0, 1.0) if draw.random() < 0.25 else PATIENCE_S
        try:
            outcome, num_tokens = await asyncio.wait_for(ask(client, body), patience_s)
        except TimeoutError:
            assert patience_s < PATIENCE_S, f"a request hangs: {body}"
            outcome, num_tokens = "left", 0
        tally.outcomes[outcome] += 1
        tally.num_tokens += num_tokens


async def storm(server: RunningServer, seconds: float, seed: int, tally: Tally) -> None:
    """All workers at once, and a sample of memory a second."""
    until_s = time.monotonic() + seconds
    limits = httpx.Limits(max_connections=None)
    root = server.url.removesuffix("/v1")
    async with httpx.AsyncClient(base_url=root, timeout=PATIENCE_S + 10, limits=limits) as client:
        workers = [
            asyncio.ensure_future(work(client, tally, random.Random(seed * 1000 + index), until_s))
            for index in range(NUM_WORKERS)
        ]
        while time.monotonic() < until_s:
            tally.memory_kib.append(footprint(server).memory_kib)
            await asyncio.sleep(SAMPLE_S)
        await asyncio.gather(*workers)


def run(server: RunningServer, seconds: float, seed: int = 0) -> Tally:
    """A storm, and the checks after it."""
    reference = server.post("completions", REFERENCE).json()["choices"]
    before = footprint(server)
    tally = Tally()
    asyncio.run(storm(server, seconds, seed, tally))
    left = wait_until_quiet(server)
    assert not any(left.values()), f"gauges stay up: {left}"
    after = footprint(server)
    assert after.num_descriptors <= before.num_descriptors + 2, (before, after)
    assert server.post("completions", REFERENCE).json()["choices"] == reference
    tally.num_preemptions = metric(server, "num_preemptions_total")
    settled = tally.memory_kib[int(len(tally.memory_kib) * SETTLING_SHARE) :]
    quarter = max(1, len(settled) // 4)
    growth_kib = sum(settled[-quarter:]) / quarter - sum(settled[:quarter]) / quarter
    assert growth_kib <= MAX_GROWTH_KIB, f"memory grew by {growth_kib:.0f} KiB after settling"
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    server = serve_model(*SERVER)
    try:
        tally = run(server, arguments.minutes * 60, arguments.seed)
    finally:
        server.stop()
    assert tally.num_preemptions > 0, "the pool was never short"
    print(f"outcomes {dict(tally.outcomes)}, {tally.num_tokens} tokens, {tally.num_preemptions:.0f} preemptions")
    print(f"memory {min(tally.memory_kib) // 1024} to {max(tally.memory_kib) // 1024} MiB")


if __name__ == "__main__":
    main()
