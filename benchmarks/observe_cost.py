"""What metrics cost the API process: one observed token, one finished choice and one page.

python benchmarks/observe_cost.py
"""

import random
import time
import timeit

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as LibraryHistogram

from paceline.core.histogram import Histogram
from paceline.engine.contract import EngineCounters
from paceline.observe import buckets
from paceline.observe.engine_families import counter_families, gauge_families
from paceline.observe.engine_reading import EngineReading
from paceline.observe.families import FamilyMaker
from paceline.observe.metrics import Page
from paceline.observe.request_families import count_families, length_families, time_families
from paceline.observe.requests import FinishedChoice, RequestMetrics

NUM_CALLS = 100_000
NUM_ROUNDS = 5


def best_us(statement: str, names: dict[str, object], num_calls: int = NUM_CALLS) -> float:
    """CPU microseconds of one call, the best of some rounds."""
    return (
        min(timeit.repeat(statement, timer=time.thread_time, globals=names, number=num_calls, repeat=NUM_ROUNDS))
        / num_calls
        * 1e6
    )


def page() -> bytes:
    """A page of a server that has served nothing; buckets are shown all the same."""
    make, requests, counters = FamilyMaker({"model_name": "x", "engine": "0"}), RequestMetrics(), EngineCounters()
    families = [*gauge_families(make, EngineReading(None, counters, 0, 0)), *counter_families(make, counters)]
    families += [*count_families(make, requests), *time_families(make, requests), *length_families(make, requests)]
    registry = CollectorRegistry()
    registry.register(Page(families))
    return generate_latest(registry)


def main() -> None:
    gaps = [random.Random(1).expovariate(50) for _ in range(NUM_CALLS)]
    library = LibraryHistogram("gap", "A gap.", buckets=buckets.GAP_S, registry=CollectorRegistry())
    for name, histogram in (("ours", Histogram(buckets.GAP_S)), ("prometheus_client", library)):
        cost_us = best_us("for gap in gaps: observe(gap)", {"gaps": gaps, "observe": histogram.observe}, 1) / NUM_CALLS
        print(f"one gap, {name}: {cost_us:.2f} us")
    choice = FinishedChoice("length", 0.0, 0.1, 0.2, 0.3, 0.9, 50, 30, 20)
    cost_us = best_us("finish(choice)", {"finish": RequestMetrics().finish, "choice": choice}, NUM_CALLS // 10)
    print(f"one finished choice: {cost_us:.1f} us")
    print(f"one page: {best_us('page()', {'page': page}, 20) / 1000:.1f} ms")


if __name__ == "__main__":
    main()
