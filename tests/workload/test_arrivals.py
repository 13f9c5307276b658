"""Each arrival process has the rate, the spread and the burstiness it is named after."""

import math
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from work_world import mean, rates, variation

from paceline.errors import ConfigError
from paceline.workload.arrivals import ClosedLoop, Constant, Gamma, OnOff, OpenLoop, Poisson, Recorded, at_rate
from paceline.workload.draws import stream

NUM_GAPS = 40_000


def times(arrivals: OpenLoop, count: int = NUM_GAPS) -> list[float]:
    return list(islice(arrivals.times(stream(5, "arrivals")), count + 1))


def gaps(arrivals: OpenLoop) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times(arrivals))]


def dispersion(moments: list[float], window_s: float) -> float:
    """Variance over mean of the number of arrivals in windows of this length."""
    counts = [0] * (int(moments[-1] / window_s) + 1)
    for moment in moments:
        counts[int(moment / window_s)] += 1
    whole = counts[:-1]  # the last window is cut short
    return variation(whole) ** 2 * mean(whole)


def test_a_closed_loop_has_no_times() -> None:
    assert list(islice(ClosedLoop(8).times(stream(0, "arrivals")), 3)) == [None, None, None]


def test_constant_arrivals_are_evenly_spaced_from_zero_without_drift() -> None:
    assert times(Constant(20), 49) == [index / 20 for index in range(50)]
    assert times(Constant(3), 30_000)[-1] == 10_000


def test_poisson_gaps_are_exponential_and_independent() -> None:
    drawn = gaps(Poisson(4))
    assert mean(drawn) == pytest.approx(0.25, rel=0.02)
    assert variation(drawn) == pytest.approx(1, rel=0.03)
    assert sum(gap > 0.25 for gap in drawn) / NUM_GAPS == pytest.approx(math.exp(-1), abs=0.01)
    assert dispersion(times(Poisson(4)), 10) == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("shape", [0.25, 0.835, 4])
def test_gamma_gaps_have_the_rate_and_the_variation(shape: float) -> None:
    drawn = gaps(Gamma(4, shape))
    assert mean(drawn) == pytest.approx(0.25, rel=0.04)
    assert variation(drawn) == pytest.approx(1 / math.sqrt(shape), rel=0.04)
    assert Gamma.from_cv(4, 2) == Gamma(4, 0.25)


@pytest.mark.parametrize(("on_s", "off_s"), [(2.0, 6.0), (1.0, 1.0)])
def test_on_off_keeps_the_mean_rate_and_bursts_as_the_theory_says(on_s: float, off_s: float) -> None:
    drawn = gaps(OnOff(8, on_s, off_s))
    assert mean(drawn) == pytest.approx(1 / 8, rel=0.05)
    # An interrupted Poisson process: CV^2 = 1 + 2 rate_on a / (a + b)^2 with a = 1/on, b = 1/off.
    rate_on, leave, back = 8 * (on_s + off_s) / on_s, 1 / on_s, 1 / off_s
    assert variation(drawn) == pytest.approx(math.sqrt(1 + 2 * rate_on * leave / (leave + back) ** 2), rel=0.08)


def test_on_off_is_poisson_while_on() -> None:
    short = sorted(gaps(OnOff(8, 2, 6)))[: NUM_GAPS // 2]  # the shorter half of the gaps lies within on-periods
    assert short[-1] == pytest.approx(math.log(2) / 32, rel=0.05)


def test_recorded_times_start_at_zero_and_play_at_a_speed() -> None:
    assert times(Recorded((100.0, 100.5, 100.5, 104.0), speed=2)) == [0, 0.25, 0.25, 2]
    assert Recorded((100.0, 104.0), speed=2).rate_per_s == 0.5


@settings(max_examples=40, deadline=None)
@given(rates, st.sampled_from([Constant(1), Poisson(1), Gamma(1, 0.5), OnOff(1, 2, 6), Recorded((0.0, 1.0, 5.0))]))
def test_another_rate_is_the_same_shape(rate: float, arrivals: OpenLoop) -> None:
    scaled = at_rate(arrivals, rate)
    assert type(scaled) is type(arrivals)
    assert scaled.rate_per_s == pytest.approx(rate)
    if not isinstance(arrivals, OnOff):  # whose on and off times stay
        factor = arrivals.rate_per_s / rate
        expected = [time * factor for time in times(arrivals, 20)]
        assert times(scaled, 20) == [pytest.approx(time) for time in expected]


def test_rates_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="closed loop has no rate"):
        at_rate(ClosedLoop(3), 4)
    with pytest.raises(ConfigError, match="one single time"):
        at_rate(Recorded((1.0, 1.0)), 4)
    for make, message in (
        (lambda: Poisson(0), "rate must be between 1e-06 and 1000000, got 0"),
        (lambda: Constant(math.nan), "rate must be"),
        (lambda: Gamma(1, 0), "shape must be"),
        (lambda: OnOff(1, 0, 1), "on must be"),
        (lambda: ClosedLoop(0), "concurrency must be between 1"),
        (lambda: Recorded(()), "at least one time"),
        (lambda: Recorded((2.0, 1.0)), r"recorded time 1 \(1.0\) lies before"),
        (lambda: Recorded((0.0, math.inf)), "recorded time 1 must be"),
    ):
        with pytest.raises(ConfigError, match=message):
            make()
