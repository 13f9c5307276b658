"""Results made of arithmetic: requests whose every time is known, for the tests of files, tables and reports."""

from dataclasses import replace
from itertools import product

from paceline.bench.record import Outcome, RequestRecord, TokenCount
from paceline.bench.result import Experiment, Header, PairedRatio, Point, Result, Targets


def record(index: int, label: str, sent_s: float, ttft_s: float, gaps_s: list[float]) -> RequestRecord:
    """A completed request, due when it was sent, one token an event."""
    times = [sent_s + ttft_s]
    for gap in gaps_s:
        times.append(times[-1] + gap)
    return RequestRecord(
        index=index,
        intended_s=sent_s,
        sent_s=sent_s,
        ended_s=times[-1],
        outcome=Outcome.COMPLETED,
        prompt_tokens=128,
        output_tokens=len(times),
        token_count=TokenCount.USAGE,
        event_times_s=tuple(times),
        event_tokens=(1,) * len(times),
        read_sizes=(1,) * len(times),
        status=200,
        label=label,
    )


def header(experiment: Experiment, points: tuple[Point, ...]) -> Header:
    """A header with something in every field."""
    return Header(
        experiment=experiment,
        command=f"paceline bench {experiment} --url http://127.0.0.1:8000 --seed 0",
        started_at="2026-01-02T03:04:05Z",
        versions={"paceline": "0.1.0", "python": "3.11"},
        server={"url": "http://127.0.0.1:8000", "model": "smollm2-135m"},
        machine={"cpu": "two cores"},
        workload={"input tokens": "fixed 128", "output tokens": "fixed 32"},
        targets=Targets(ttft_s=0.3, itl_s=0.04),
        points=points,
    )


def sweep() -> Result:
    """Concurrency 1 to 64 at a server that saturates near 8: the gaps grow with the load, then the queue does."""
    points, records = [], []
    for concurrency in (1, 2, 4, 8, 16, 32, 64):
        label = f"concurrency {concurrency}"
        gap, queue = 0.008 * max(1.0, concurrency / 8), 0.05 * max(0, concurrency - 8)
        rounds = [
            record(number * concurrency + row, label, number * 31 * gap, 0.02 + queue + 0.002 * row, [gap] * 30)
            for number in range(3)
            for row in range(concurrency)
        ]
        end = max(one.ended_s for one in rounds)
        limit = "decode: the server's steps" if concurrency >= 8 else "the client's concurrency"
        points.append(Point(label, 0.0, end + 0.001, concurrency=concurrency, limited_by=limit))
        records += rounds
    return Result(replace(header(Experiment.SWEEP, tuple(points)), knee="concurrency 8"), tuple(records))


def hol(stalls_s: dict[str, float]) -> Result:
    """Four streams of 20 ms gaps; at 2 s a long prompt stops each for so long, once, and begins when they go on."""
    points, records = [], []
    for label, stall_s in stalls_s.items():
        for row in range(4):
            records.append(record(row, label, 0.01 * row, 0.05, [0.02] * 98 + [stall_s] + [0.02] * 50))
        records.append(record(99, label, 1.99, stall_s + 0.1, [0.02] * 5))
        points.append(Point(label, 0.0, 10.0, server=label, injected=(99,)))
    return Result(header(Experiment.HOL, tuple(points)), tuple(records))


def prefix() -> Result:
    """Cache on and off at three shares, three rounds; the second is the median."""
    points, records = [], []
    for server, share, turn in product(("cache", "no cache"), (0.0, 0.5, 0.9), (1, 2, 3)):
        label = f"{server}, {share:.0%} shared, round {turn}"
        ttft = (0.2 * (1 - share) if server == "cache" else 0.2) * (0.8 + 0.1 * turn)
        records += [record(row, label, 0.1 * row, ttft, [0.01] * 9) for row in range(10)]
        points.append(Point(label, 0.0, 5.0, shared_share=share, server=server))
    return Result(header(Experiment.PREFIX, tuple(points)), tuple(records))


def compare() -> Result:
    """Two servers, three alternations."""
    points = tuple(
        Point(f"{name}, concurrency 8, round {turn}", 0.0, 5.0, server=name) for turn in (1, 2, 3) for name in "AB"
    )
    records = tuple(record(0, point.label, 0.0, 0.1, [0.01] * 20) for point in points)
    ratios = (
        PairedRatio("output tokens/s", "B, concurrency 8", "A, concurrency 8", 1.21, 1.17, 1.26, (1.19, 1.2, 1.24)),
        PairedRatio("TTFT p50", "B, concurrency 8", "A, concurrency 8", 0.99, 0.93, 1.05, (0.95, 0.98, 1.04)),
    )
    return Result(replace(header(Experiment.COMPARE, points), ratios=ratios), records)


def goodput() -> Result:
    """Open loops around 8 requests a second, beyond which TTFT leaves its target of 0.3 s."""
    points, records = [], []
    for rate in (2.0, 4.0, 8.0, 10.0):
        label = f"{rate:g} requests/s"
        ttft = 0.1 if rate <= 8 else 0.5
        records += [record(row, label, row / rate, ttft, [0.01] * 9) for row in range(10)]
        points.append(Point(label, 0.0, 12.0, rate_per_s=rate))
    return Result(replace(header(Experiment.GOODPUT, tuple(points)), knee="8 requests/s"), tuple(records))
