"""Long simulations keep some of their requests: bounded, the same ones each time, and the report is still right."""

from dataclasses import replace

import pytest

from paceline.bench.measures import Summary, summarize
from paceline.bench.report import render_report
from paceline.bench.result import Targets
from paceline.bench.thinned import summarize_point
from paceline.costs.step import LinearLaw
from paceline.sim.kept import KeptRecords, cells
from paceline.sim.policies import Policy
from paceline.sim.scenario import Scenario, Simulated, result_of, simulate
from paceline.workload.arrivals import Poisson
from paceline.workload.distributions import Fixed, Geometric, Uniform
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import SystemPrompt
from paceline.workload.sessions import Sessions
from paceline.workload.workload import Workload

TURNS = Sessions(Fixed(4), Fixed(1.0))
CHAT = Workload(Lengths(Uniform(16, 80), Geometric(12)), Poisson(4.0), SystemPrompt(64), TURNS)
SCENARIO = Scenario(CHAT, Policy(batch=16), LinearLaw(), num_requests=3_000, warmup_s=5.0)
TARGETS = Targets(ttft_s=0.2, itl_s=0.03)
MAX_CELLS = 20_000


@pytest.fixture(scope="module")
def whole() -> Simulated:
    return simulate(SCENARIO)


@pytest.fixture(scope="module")
def thinned() -> Simulated:
    return simulate(SCENARIO, MAX_CELLS)


def measured(run: Simulated) -> Summary:
    return summarize_point(run.records, run.point, TARGETS)


def test_what_is_kept_is_bounded_and_is_a_part_of_the_whole(whole: Simulated, thinned: Simulated) -> None:
    assert len(whole.records) == 3_000
    assert whole.point.kept_share == 1.0
    assert not whole.point.warnings
    assert sum(map(cells, thinned.records)) <= MAX_CELLS
    assert thinned.point.kept_share == len(thinned.records) / 3_000 == pytest.approx(1 / 4, rel=0.1)
    assert set(thinned.records) < set(whole.records)
    assert (
        replace(whole.point, kept_share=thinned.point.kept_share, warnings=thinned.point.warnings) == thinned.point
    ), "the window is that of all"


def test_every_turn_of_a_session_is_as_likely_to_be_kept(thinned: Simulated) -> None:
    by_turn = [sum(record.index % 4 == turn for record in thinned.records) for turn in range(4)]
    assert all(count == pytest.approx(3_000 / 4 / 4, rel=0.25) for count in by_turn)


def test_rates_counts_and_percentiles_are_those_of_all(whole: Simulated, thinned: Simulated) -> None:
    all_of_it, some = measured(whole), measured(thinned)
    assert some.num_requests == pytest.approx(all_of_it.num_requests, abs=20), "but for what the warm-up cuts"
    for name in ("requests_per_s", "output_tokens_per_s", "prompt_tokens_per_s", "cached_tokens"):
        assert getattr(some, name) == pytest.approx(getattr(all_of_it, name), rel=0.05), name
    assert some.goodput_requests_per_s == pytest.approx(all_of_it.goodput_requests_per_s, rel=0.05)
    assert some.share_met == pytest.approx(all_of_it.share_met, abs=0.03)
    for name in ("ttft_s", "itl_s", "tpot_s", "e2e_s"):
        assert getattr(some, name).p50 == pytest.approx(getattr(all_of_it, name).p50, rel=0.05), name
    # Without the factor the rates would be a quarter.
    assert summarize(thinned.records).requests_per_s < 0.3 * all_of_it.requests_per_s


def test_the_same_run_keeps_the_same_requests(thinned: Simulated) -> None:
    assert simulate(SCENARIO, MAX_CELLS) == thinned


def test_the_report_says_what_was_kept(thinned: Simulated) -> None:
    result = result_of([thinned], TARGETS, "paceline simulate", {"server": {}, "workload": {}})
    page = render_report(result)
    assert f"3,000 requests were simulated, and one in 4 of them kept ({len(thinned.records):,})" in page


def test_one_request_larger_than_the_budget_is_kept(whole: Simulated) -> None:
    kept = KeptRecords(max_cells=1)
    kept.add(whole.records[0])
    assert kept.records == [whole.records[0]]
