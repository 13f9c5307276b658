"""When requests arrive: closed loop, constant, Poisson, Gamma, on/off, recorded.

`rate_per_s` is the long-run mean rate of every open loop, so a sweep changes that one number (`at_rate`) and keeps the
shape. With sessions, what arrives is a session.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, repeat
from random import Random

from paceline.errors import ConfigError
from paceline.workload.checks import check_range, check_whole
from paceline.workload.draws import open_unit

MIN_RATE, MAX_RATE = 1e-6, 1e6
MAX_TIME_S = 1e9
MAX_CONCURRENCY = 2**20


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`concurrency` requests (or sessions) at any time; the next is sent when one ends, so it has no arrival time."""

    concurrency: int

    def __post_init__(self) -> None:
        check_whole("concurrency", self.concurrency, 1, MAX_CONCURRENCY)

    def times(self, random: Random) -> Iterator[float | None]:
        """None, for ever."""
        return repeat(None)


@dataclass(frozen=True, slots=True)
class Constant:
    """One every 1 / rate seconds, the first at 0."""

    rate_per_s: float

    def __post_init__(self) -> None:
        check_range("rate", self.rate_per_s, MIN_RATE, MAX_RATE)

    def times(self, random: Random) -> Iterator[float]:
        """i / rate."""
        return (index / self.rate_per_s for index in count())


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent users: gaps are exponential, their coefficient of variation is 1."""

    rate_per_s: float

    def __post_init__(self) -> None:
        check_range("rate", self.rate_per_s, MIN_RATE, MAX_RATE)

    def times(self, random: Random) -> Iterator[float]:
        """Sums of exponential gaps."""
        time_s = 0.0
        while True:
            time_s -= math.log(open_unit(random)) / self.rate_per_s
            yield time_s


@dataclass(frozen=True, slots=True)
class Gamma:
    """Bursts without memory: gaps are Gamma distributed, their coefficient of variation is 1 / sqrt(shape)."""

    rate_per_s: float
    shape: float

    def __post_init__(self) -> None:
        check_range("rate", self.rate_per_s, MIN_RATE, MAX_RATE)
        check_range("shape", self.shape, 0.01, 1000)

    @classmethod
    def from_cv(cls, rate_per_s: float, cv: float) -> "Gamma":
        """The one whose gaps have this coefficient of variation."""
        check_range("cv", cv, 0.04, 10)
        return cls(rate_per_s, 1 / cv**2)

    def times(self, random: Random) -> Iterator[float]:
        """Sums of Gamma gaps with mean 1 / rate."""
        time_s = 0.0
        while True:
            time_s += random.gammavariate(self.shape, 1 / (self.shape * self.rate_per_s))
            yield time_s


@dataclass(frozen=True, slots=True)
class OnOff:
    """Poisson while on, silence while off; both periods are exponential with these means. Begins on.

    `rate_per_s` is the mean over both: while on, the rate is (on + off) / on times as high.
    """

    rate_per_s: float
    on_s: float
    off_s: float

    def __post_init__(self) -> None:
        check_range("rate", self.rate_per_s, MIN_RATE, MAX_RATE)
        check_range("on", self.on_s, 1e-3, 1e6)
        check_range("off", self.off_s, 1e-3, 1e6)

    def times(self, random: Random) -> Iterator[float]:
        """A Poisson process on the clock of the on-periods, the silences put between."""
        on_rate = self.rate_per_s * (self.on_s + self.off_s) / self.on_s
        silence_s = 0.0  # so far
        on_clock_s = 0.0
        period_ends_s = -math.log(open_unit(random)) * self.on_s
        while True:
            on_clock_s -= math.log(open_unit(random)) / on_rate
            while on_clock_s >= period_ends_s:
                silence_s -= math.log(open_unit(random)) * self.off_s
                period_ends_s -= math.log(open_unit(random)) * self.on_s
            yield on_clock_s + silence_s


@dataclass(frozen=True, slots=True)
class Recorded:
    """Times that were measured somewhere, from the first; `speed` 2 plays them twice as fast. Ends with them."""

    times_s: tuple[float, ...]
    speed: float = 1.0

    def __post_init__(self) -> None:
        check_range("speed", self.speed, 1e-6, 1e6)
        if not self.times_s:
            raise ConfigError("recorded arrivals need at least one time")
        for index, time_s in enumerate(self.times_s):
            check_range(f"recorded time {index}", time_s, -MAX_TIME_S, MAX_TIME_S)
            if index and time_s < self.times_s[index - 1]:
                raise ConfigError(f"recorded time {index} ({time_s}) lies before the one before it: sort them")

    @property
    def rate_per_s(self) -> float:
        """Mean rate over the recording as it is played; infinite when all arrive at once."""
        span_s = (self.times_s[-1] - self.times_s[0]) / self.speed
        return (len(self.times_s) - 1) / span_s if span_s > 0 else math.inf

    def times(self, random: Random) -> Iterator[float]:
        """The recorded times, from 0."""
        return ((time_s - self.times_s[0]) / self.speed for time_s in self.times_s)


OpenLoop = Constant | Poisson | Gamma | OnOff | Recorded
Arrivals = ClosedLoop | OpenLoop


def at_rate(arrivals: Arrivals, rate_per_s: float) -> OpenLoop:
    """The same shape at another mean rate."""
    if isinstance(arrivals, ClosedLoop):
        raise ConfigError("a closed loop has no rate: its requests come as fast as the server answers")
    check_range("rate", rate_per_s, MIN_RATE, MAX_RATE)
    if not isinstance(arrivals, Recorded):
        return replace(arrivals, rate_per_s=rate_per_s)
    if not 0 < arrivals.rate_per_s < math.inf:
        raise ConfigError("recorded arrivals at one single time have no rate")
    return replace(arrivals, speed=arrivals.speed * rate_per_s / arrivals.rate_per_s)
