"""`bench goodput`: the largest rate at which a share of all requests meets its targets, found by bisection."""

from dataclasses import replace

from paceline.bench.endpoint import BenchError
from paceline.bench.experiment import Held, Settings, hold, result_of
from paceline.bench.load import Caller
from paceline.bench.result import Experiment, Result, Targets
from paceline.bench.sweep import at_rate_spot, first_rate

# The answer lies within this of the true rate, as far as the runs are repeatable.
PRECISION = 0.05
MAX_POINTS = 16


async def measure_goodput(caller: Caller, settings: Settings, share: float) -> Result:
    """Double (or halve) the rate until targets are missed (or met), then bisect. The best point is the result's knee;
    there is none when even the lightest load misses.
    """
    if settings.targets == Targets():
        raise BenchError("goodput needs a target: --ttft, --itl or --e2e")
    if not 0 < share <= 1:
        raise BenchError(f"--share must lie in (0, 1], got {share}")
    points: list[Held] = []
    met, missed = 0.0, 0.0
    rate = await first_rate(caller, settings)
    while len(points) < MAX_POINTS and not (met and missed and missed <= met * (1 + PRECISION)):
        held = await hold(caller, settings, at_rate_spot(rate, len(points)))
        points.append(held)
        if held.summary.share_met >= share:
            met = rate
        else:
            missed = rate
        rate = next_rate(met, missed)
    ordered = sorted(points, key=lambda held: held.point.rate_per_s or 0.0)
    result = result_of(Experiment.GOODPUT, settings, [caller], ordered)
    best = [held.point.label for held in ordered if held.point.rate_per_s == met]
    return replace(result, header=replace(result.header, knee=best[0] if best else None))


def next_rate(met: float, missed: float) -> float:
    """Where to look next; 0: not known yet."""
    if not missed:
        return met * 2
    if not met:
        return missed / 2
    return (met + missed) / 2
