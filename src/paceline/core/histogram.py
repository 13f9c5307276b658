"""Values counted by bucket, as Prometheus counts them: cheap enough for every token.

bounds      0.01    0.02    0.05
counts    [ 0.01 ]( 0.02 ]( 0.05 ]( more )      a value equal to a bound belongs below it
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

STEP_TOKENS_BOUNDS = tuple(float(2**power) for power in range(15))
"""Buckets of the tokens computed by one step: 1, 2, 4 ... 16384."""


@dataclass(frozen=True, slots=True)
class HistogramState:
    """A histogram at one moment. `counts` has one entry more than `bounds`; `total` is the sum of the values."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    def plus(self, other: "HistogramState") -> "HistogramState":
        """Both together; they have the same bounds."""
        assert self.bounds == other.bounds, "histograms of different bounds can't be added"
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return HistogramState(self.bounds, counts, self.total + other.total)


class Histogram:
    """A histogram that grows. Bounds ascend."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def state(self) -> HistogramState:
        """What has been counted so far."""
        return HistogramState(self._bounds, tuple(self._counts), self._total)
