"""Ratios of measurements made in turn, A B A B: what both met at the same time (heat, neighbours) cancels in each pair.

The interval is the sign test's: order statistics of the pairs that hold the median with 95 % certainty, whatever the
distribution. With fewer than six pairs that is impossible, and the interval is their whole range.
"""

from collections.abc import Sequence
from math import comb
from statistics import median

from paceline.bench.result import PairedRatio

CONFIDENCE = 0.95


def sign_test_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The narrowest symmetric pair of order statistics around the median, or the range when none is wide enough."""
    ordered = sorted(values)
    num = len(ordered)
    depth = 0
    while depth + 1 < (num + 1) // 2 and coverage(num, depth + 1) >= confidence:
        depth += 1
    return ordered[depth], ordered[num - 1 - depth]


def coverage(num: int, depth: int) -> float:
    """Chance that the median lies between the order statistics `depth` places from either end."""
    return 1.0 - 2.0 * sum(comb(num, below) for below in range(depth + 1)) / float(2**num)


def paired_ratio(
    measure: str, label: str, baseline: str, values: Sequence[float], base_values: Sequence[float]
) -> PairedRatio | None:
    """`values` over `base_values`, pair by pair; None when no pair has both."""
    both = zip(values, base_values, strict=True)
    pairs = tuple(value / base for value, base in both if value > 0 and base > 0)
    if not pairs:
        return None
    low, high = sign_test_interval(pairs)
    return PairedRatio(measure, label, baseline, median(pairs), low, high, pairs)
