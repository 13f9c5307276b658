"""Buckets count what a plain count of the values says."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.histogram import Histogram

VALUES = st.lists(st.integers(-2, 40).map(float), max_size=60)
BOUNDS = st.sets(st.integers(0, 30).map(float), min_size=1, max_size=8).map(sorted)


@given(VALUES, VALUES, BOUNDS)
def test_each_value_is_counted_once_at_the_first_bound_that_holds_it(
    first: list[float], second: list[float], bounds: list[float]
) -> None:
    states = []
    for values in (first, second):
        histogram = Histogram(bounds)
        for value in values:
            histogram.observe(value)
        states.append(histogram.state())
    both = states[0].plus(states[1])
    values = first + second
    edges = [float("-inf"), *bounds, float("inf")]
    expected = [sum(low < value <= high for value in values) for low, high in pairwise(edges)]
    assert list(both.counts) == expected
    assert both.total == sum(values)


def test_a_state_does_not_change_when_its_histogram_does() -> None:
    histogram = Histogram([1.0])
    before = histogram.state()
    histogram.observe(1.0)
    assert (before.counts, histogram.state().counts) == ((0, 0), (1, 0))


def test_histograms_of_different_bounds_are_not_added() -> None:
    with pytest.raises(AssertionError, match="different bounds"):
        Histogram([1.0]).state().plus(Histogram([2.0]).state())
