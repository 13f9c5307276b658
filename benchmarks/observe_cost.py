"""What metrics cost the API process: one observed token and one finished choice.

python benchmarks/observe_cost.py
"""

import random
import timeit

from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as LibraryHistogram

from paceline.core.histogram import Histogram
from paceline.observe import buckets
from paceline.observe.requests import FinishedChoice, RequestMetrics

NUM_CALLS = 100_000
NUM_ROUNDS = 5


def best_us(statement: str, names: dict[str, object], num_calls: int = NUM_CALLS) -> float:
    """Microseconds of one call, the best of some rounds."""
    return min(timeit.repeat(statement, globals=names, number=num_calls, repeat=NUM_ROUNDS)) / num_calls * 1e6


def main() -> None:
    gaps = [random.Random(1).expovariate(50) for _ in range(NUM_CALLS)]
    library = LibraryHistogram("gap", "A gap.", buckets=buckets.GAP_S, registry=CollectorRegistry())
    for name, histogram in (("ours", Histogram(buckets.GAP_S)), ("prometheus_client", library)):
        cost_us = best_us("for gap in gaps: observe(gap)", {"gaps": gaps, "observe": histogram.observe}, 1) / NUM_CALLS
        print(f"one gap, {name}: {cost_us:.2f} us")
    choice = FinishedChoice("length", 0.0, 0.1, 0.2, 0.3, 0.9, 50, 30, 20)
    cost_us = best_us("finish(choice)", {"finish": RequestMetrics().finish, "choice": choice}, NUM_CALLS // 10)
    print(f"one finished choice: {cost_us:.1f} us")


if __name__ == "__main__":
    main()
