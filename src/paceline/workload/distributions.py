"""Distributions of lengths and of think times, each as its quantile function.

`at(u)` is the value that a share u of draws stays below, 0 < u < 1: one uniform number gives one draw, so correlated
lengths need only correlated uniforms, and a test can read the quantiles without drawing.
"""

import math
from bisect import bisect_right
from dataclasses import dataclass
from statistics import NormalDist
from typing import Protocol

from paceline.errors import ConfigError
from paceline.workload.checks import check_range, check_whole

MAX_VALUE = 2.0**24  # tokens, longer than any context; think times (seconds) share the bound
STANDARD_NORMAL = NormalDist()


class Distribution(Protocol):
    """What the lengths and sessions need to know of a distribution."""

    def at(self, u: float) -> float:
        """The quantile at u, 0 < u < 1."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always the same value."""

    value: float

    def __post_init__(self) -> None:
        check_range("value", self.value, 0, MAX_VALUE)

    def at(self, u: float) -> float:
        """The value."""
        return self.value


@dataclass(frozen=True, slots=True)
class Uniform:
    """Whole numbers from `low` to `high`, both included, equally likely."""

    low: int
    high: int

    def __post_init__(self) -> None:
        check_whole("low", self.low, 0, int(MAX_VALUE))
        check_whole("high", self.high, int(self.low), int(MAX_VALUE))

    def at(self, u: float) -> float:
        """The whole number whose share of the range u falls in."""
        return self.low + int(u * (self.high - self.low + 1))


@dataclass(frozen=True, slots=True)
class Geometric:
    """Whole numbers from 1: trials until the first success of probability 1 / mean."""

    mean: float

    def __post_init__(self) -> None:
        check_range("mean", self.mean, 1, MAX_VALUE)

    def at(self, u: float) -> float:
        """Smallest n with 1 - (1 - 1/mean)^n >= u."""
        if self.mean == 1:
            return 1.0
        return max(1.0, math.ceil(math.log1p(-u) / math.log1p(-1 / self.mean)))


@dataclass(frozen=True, slots=True)
class LogNormal:
    """exp of a normal with mean ln(median) and standard deviation sigma."""

    median: float
    sigma: float

    def __post_init__(self) -> None:
        check_range("median", self.median, 1e-6, MAX_VALUE)
        check_range("sigma", self.sigma, 0, 10)

    @classmethod
    def from_mean(cls, mean: float, sd: float) -> "LogNormal":
        """The one with this mean and standard deviation."""
        check_range("mean", mean, 1e-6, MAX_VALUE)
        check_range("sd", sd, 0, MAX_VALUE)
        variance = math.log1p((sd / mean) ** 2)
        return cls(mean * math.exp(-variance / 2), math.sqrt(variance))

    @classmethod
    def from_quantile(cls, median: float, u: float, value: float) -> "LogNormal":
        """The one with this median whose quantile at u (above the middle) is `value`."""
        return cls(median, math.log(value / median) / STANDARD_NORMAL.inv_cdf(u))

    def at(self, u: float) -> float:
        """The quantile, at most MAX_VALUE."""
        exponent = math.log(self.median) + self.sigma * STANDARD_NORMAL.inv_cdf(u)
        return min(MAX_VALUE, math.exp(min(exponent, math.log(MAX_VALUE))))


@dataclass(frozen=True, slots=True)
class QuantileTable:
    """Known quantiles, joined by lines in log space. Outside them the first and the last value: tails aren't known."""

    shares: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.shares or len(self.shares) != len(self.values):
            raise ConfigError(f"a quantile table needs as many shares as values, got {self.shares} and {self.values}")
        if list(self.shares) != sorted(set(self.shares)) or self.shares[0] < 0 or self.shares[-1] > 1:
            raise ConfigError(f"shares of a quantile table must increase within [0, 1], got {self.shares}")
        if list(self.values) != sorted(self.values) or self.values[0] <= 0 or self.values[-1] > MAX_VALUE:
            raise ConfigError(f"values of a quantile table must not fall and lie in (0, 2^24], got {self.values}")

    def at(self, u: float) -> float:
        """The value on the line between the quantiles around u."""
        right = bisect_right(self.shares, u)
        if right == 0 or right == len(self.shares):
            return self.values[max(0, right - 1)]
        low_u, high_u = self.shares[right - 1 : right + 1]
        low, high = self.values[right - 1 : right + 1]
        return float(low * (high / low) ** ((u - low_u) / (high_u - low_u)))


@dataclass(frozen=True, slots=True)
class Clipped:
    """Another distribution, its draws moved into [low, high]."""

    inner: Distribution
    low: float = 0.0
    high: float = MAX_VALUE

    def __post_init__(self) -> None:
        check_range("min", self.low, 0, MAX_VALUE)
        check_range("max", self.high, self.low, MAX_VALUE)

    def at(self, u: float) -> float:
        """The inner quantile, clipped."""
        return min(self.high, max(self.low, self.inner.at(u)))


def whole_at(distribution: Distribution, u: float) -> int:
    """The quantile as a count: rounded, at least 1."""
    return max(1, round(distribution.at(u)))
