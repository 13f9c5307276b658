"""Quantile functions give the quantiles, moments and bounds they are named after."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from work_world import correlation, distributions, mean, ranks, variation

from paceline.errors import ConfigError
from paceline.workload.catalogue import CATALOGUE, find_workload
from paceline.workload.distributions import (
    Clipped,
    Distribution,
    Fixed,
    Geometric,
    LogNormal,
    QuantileTable,
    Uniform,
    whole_at,
)
from paceline.workload.draws import open_unit, stream
from paceline.workload.lengths import Lengths
from paceline.workload.tables import TABLES

GRID = [(step + 0.5) / 20_000 for step in range(20_000)]
TABLE_SIDES = [(table, side) for table in TABLES for side in ("input", "output")]


class Edge(Random):
    """Draws the smallest (or largest) number there is."""

    def __init__(self, bit: int) -> None:
        self.bit = bit

    def getrandbits(self, k: int) -> int:
        return self.bit * (2**k - 1)


@given(
    distributions,
    st.floats(0, 1, exclude_min=True, exclude_max=True),
    st.floats(0, 1, exclude_min=True, exclude_max=True),
)
def test_quantiles_do_not_fall(distribution: Distribution, first: float, second: float) -> None:
    low, high = sorted((first, second))
    assert distribution.at(low) <= distribution.at(high)


def test_the_ends_of_the_unit_interval_are_never_drawn_and_always_have_a_quantile() -> None:
    lowest, highest = open_unit(Edge(0)), open_unit(Edge(1))
    assert 0 < lowest < 1e-15
    assert 1 - 1e-15 < highest < 1
    for distribution in (Uniform(3, 9), Geometric(64), LogNormal(100, 10), Fixed(1)):
        assert 1 <= whole_at(distribution, lowest) <= whole_at(distribution, highest) <= 2**24
    assert (Uniform(3, 9).at(lowest), Uniform(3, 9).at(highest)) == (3, 9)
    for sign in (-1.0, 1.0):
        Lengths(LogNormal(100, 2), LogNormal(100, 2), sign).draw(Edge(1))


def test_uniform_draws_every_whole_number_equally_often() -> None:
    draws = [Uniform(32, 255).at(u) for u in [(step + 0.5) / 22_400 for step in range(22_400)]]
    assert {draws.count(value) for value in range(32, 256)} == {100}


def test_geometric_is_at_least_one_and_memoryless_with_its_mean() -> None:
    draws = [Geometric(64).at(u) for u in GRID]
    assert min(draws) == 1
    assert mean(draws) == pytest.approx(64, rel=0.01)
    assert sum(draw > 64 for draw in draws) / len(draws) == pytest.approx((1 - 1 / 64) ** 64, abs=0.001)
    assert Geometric(1).at(0.999) == 1


def test_log_normal_by_median_by_mean_and_by_quantile() -> None:
    assert LogNormal(161, 0.8).at(0.5) == pytest.approx(161)
    assert LogNormal(161, 0.8).at(0.841344746) == pytest.approx(161 * math.exp(0.8), rel=1e-6)
    draws = [LogNormal.from_mean(338, 200).at(u) for u in GRID]
    assert mean(draws) == pytest.approx(338, rel=0.005)
    assert variation(draws) * mean(draws) == pytest.approx(200, rel=0.02)
    assert LogNormal.from_quantile(1730, 0.9, 5696).at(0.9) == pytest.approx(5696)


def test_clipping_moves_draws_to_the_edge() -> None:
    clipped = Clipped(LogNormal(100, 1), 50, 200)
    assert (clipped.at(0.001), clipped.at(0.5), clipped.at(0.999)) == (50, pytest.approx(100), 200)


def test_a_table_is_a_line_in_log_space_between_its_quantiles_and_flat_beyond() -> None:
    table = QuantileTable((0.25, 0.75), (10, 1000))
    assert table.at(0.5) == pytest.approx(100)
    assert (table.at(0.1), table.at(0.25), table.at(0.75), table.at(0.9)) == (10, 10, 1000, 1000)


@pytest.mark.parametrize(("table", "side"), TABLE_SIDES, ids=[f"{table.name}-{side}" for table, side in TABLE_SIDES])
def test_draws_reproduce_the_quantiles_of_a_table(table, side) -> None:  # type: ignore[no-untyped-def]
    quantiles = getattr(table.lengths, side)
    random = stream(3, table.name)
    # One draw in each of many equal slices: as random as the workload's, with little noise between the quantiles.
    draws = sorted(whole_at(quantiles, (step + open_unit(random)) / 20_000) for step in range(20_000))
    for share, value in zip(quantiles.shares, quantiles.values, strict=True):
        if share < 1:
            assert draws[int(share * 20_000)] == pytest.approx(value, rel=0.02), share


def test_items_of_a_table_have_its_quantiles() -> None:
    random = stream(0, "lengths")
    draws = sorted(find_workload("azure2023_conv").lengths.draw(random)[0] for _ in range(20_000))
    for share, value in ((0.10, 207), (0.25, 396), (0.5, 1020), (0.75, 1189), (0.9, 2735), (0.95, 4083), (0.99, 4142)):
        assert draws[int(share * 20_000)] == pytest.approx(value, rel=0.06), share


@pytest.mark.parametrize("name", ["mooncake_synthetic", "azure2023_conv", "azure2023_code"])
def test_input_and_output_have_the_rank_correlation_of_the_table(name: str) -> None:
    lengths = find_workload(name).lengths
    smooth = Lengths(LogNormal(1e6, 0.5), LogNormal(1e6, 0.5), lengths.spearman)  # no ties among the ranks
    random = stream(1, name)
    pairs = [smooth.draw(random) for _ in range(20_000)]
    inputs, outputs = ranks([pair[0] for pair in pairs]), ranks([pair[1] for pair in pairs])
    assert correlation(inputs, outputs) == pytest.approx(lengths.spearman, abs=0.02)


def test_correlation_keeps_the_margins() -> None:
    random = stream(2, "margins")
    outputs = [Lengths(Uniform(1, 9), Uniform(1, 100), -0.8).draw(random)[1] for _ in range(20_000)]
    assert mean(outputs) == pytest.approx(50.5, rel=0.02)
    assert variation(outputs) == pytest.approx(math.sqrt((100**2 - 1) / 12) / 50.5, rel=0.02)


def test_every_known_workload_says_where_it_comes_from_and_shapes_say_what_was_chosen() -> None:
    assert len({known.name for known in CATALOGUE}) == len(CATALOGUE) >= 15
    for known in CATALOGUE:
        assert known.source
        assert known.licence
        assert known.note or not known.is_shape
    assert not any(table.is_shape for table in TABLES)
    with pytest.raises(ConfigError, match=r"--workload: there is no workload named 'gpt'; known: azure2023_conv"):
        find_workload("gpt")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(9, 3), "high must be between 9"),
        (lambda: Geometric(0.5), "mean must be between 1 and 16777216, got 0.5"),
        (lambda: LogNormal(0, 1), "median must be"),
        (lambda: LogNormal(5, math.nan), "sigma must be between 0 and 10, got nan"),
        (lambda: Fixed(math.inf), "value must be"),
        (lambda: Lengths(Fixed(1), Fixed(1), 1.5), "spearman must be between -1 and 1"),
        (lambda: QuantileTable((0.5, 0.4), (1, 2)), "must increase"),
        (lambda: QuantileTable((0.4, 0.5), (2, 1)), "must not fall"),
        (lambda: QuantileTable((0.4,), ()), "as many shares as values"),
        (lambda: Clipped(Fixed(1), 5, 3), "max must be between 5"),
    ],
)
def test_wrong_parameters_are_named(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match=message):
        make()
