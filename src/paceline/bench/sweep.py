"""`bench sweep`: throughput against latency as the load grows, and the knee of that curve."""

import math
from collections.abc import Sequence
from dataclasses import replace

from paceline.bench.endpoint import BenchError
from paceline.bench.experiment import Held, Settings, Spot, hold, result_of
from paceline.bench.knee import knee_index
from paceline.bench.load import Caller
from paceline.bench.result import Experiment, Result

# A rate of which less than this share is answered in time is beyond what the server can do.
KEPT_UP = 0.9
MAX_RATES = 16


def doublings(first: int, last: int) -> list[int]:
    """first, 2 first, 4 first, ... and `last` itself."""
    if not 1 <= first <= last:
        raise BenchError(f"concurrency {first} to {last}: expected 1 <= first <= last")
    found = [first]
    while found[-1] * 2 <= last:
        found.append(found[-1] * 2)
    return found if found[-1] == last else [*found, last]


async def measure_sweep(caller: Caller, settings: Settings, concurrencies: Sequence[int]) -> Result:
    """Closed loops of growing concurrency."""
    points = [
        await hold(caller, settings, Spot(f"concurrency {concurrency}", concurrency=concurrency, repetition=number))
        for number, concurrency in enumerate(concurrencies)
    ]
    return with_knee(result_of(Experiment.SWEEP, settings, [caller], points), points)


async def measure_rates(caller: Caller, settings: Settings, rates: Sequence[float]) -> Result:
    """Open loops of growing rate: those given, or, when none is, doubling until the server no longer keeps up."""
    points: list[Held] = []
    if rates:
        for number, rate in enumerate(sorted(rates)):
            points.append(await hold(caller, settings, at_rate_spot(rate, number)))
    else:
        rate = await first_rate(caller, settings)
        while len(points) < MAX_RATES:
            points.append(await hold(caller, settings, at_rate_spot(rate, len(points))))
            if not keeps_up(points[-1]):
                break
            rate *= 2
    return with_knee(result_of(Experiment.SWEEP, settings, [caller], points), points)


def at_rate_spot(rate_per_s: float, repetition: int) -> Spot:
    """An open loop at this rate."""
    return Spot(f"{rate_per_s:.3g} requests/s", rate_per_s=rate_per_s, repetition=repetition)


async def first_rate(caller: Caller, settings: Settings) -> float:
    """Half of what one request after another reaches: a load that is light for any server."""
    alone = await hold(caller, settings, Spot("one at a time", concurrency=1, repetition=MAX_RATES))
    if not alone.summary.requests_per_s:
        raise BenchError("no request was answered within the measured time: measure longer, or give --rates")
    return alone.summary.requests_per_s / 2


def keeps_up(held: Held) -> bool:
    """Whether the server answered requests about as fast as they came."""
    point = held.point
    arrived = sum(point.window_start_s <= record.intended_s < point.window_end_s for record in held.records)
    answered_per_s = held.summary.requests_per_s
    return answered_per_s * held.summary.seconds >= KEPT_UP * arrived


def with_knee(result: Result, points: Sequence[Held]) -> Result:
    """Mark the knee and say of each point on which side of it it lies."""
    loads = [load_of(held) for held in points]
    index = knee_index(loads, [held.summary.output_tokens_per_s for held in points])
    if index is None:
        return result
    marked = tuple(replace(held.point, limited_by=place(points, index, number)) for number, held in enumerate(points))
    return replace(result, header=replace(result.header, points=marked, knee=points[index].point.label))


def place(points: Sequence[Held], knee: int, number: int) -> str:
    """Where on the curve a point lies, and what limits it there."""
    said = points[number].point.limited_by
    if number == knee:
        return f"the knee: more load buys little more throughput; {said}"
    if said.startswith("the client"):
        return f"{'below' if number < knee else 'beyond'} the knee; {said}"
    if number < knee:
        return f"below the knee: more load still buys throughput; {said}"
    gain = points[number].summary.output_tokens_per_s / points[knee].summary.output_tokens_per_s - 1
    first, last = (value_of_load(points[each]) for each in (knee, number))
    return f"beyond the knee: {last / first:.3g} times its load gave {gain:+.0%} throughput: the server is the limit"


def value_of_load(held: Held) -> float:
    """Concurrency or rate."""
    return float(held.point.concurrency or held.point.rate_per_s or 1.0)


def load_of(held: Held) -> float:
    """The load on the knee's axis."""
    point = held.point
    if point.concurrency is not None:
        return math.log2(point.concurrency)
    assert point.rate_per_s is not None, "a point of a sweep has a concurrency or a rate"
    return point.rate_per_s
