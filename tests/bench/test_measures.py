"""The definitions, on records made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.bench.knee import knee_index
from paceline.bench.measures import (
    Window,
    e2e_s,
    gaps_s,
    meets,
    service_ttft_s,
    share_met,
    spread,
    summarize,
    tpot_s,
    ttft_s,
    worst_mean_gap_s,
)
from paceline.bench.pairs import coverage, paired_ratio, sign_test_interval
from paceline.bench.record import Outcome, RequestRecord, TokenCount
from paceline.bench.result import Targets
from paceline.bench.selfcheck import ClientCheck, missed_schedule, warnings


def record(
    intended_s: float = 0.0, sent_s: float | None = None, times: tuple[float, ...] = (1.0, 1.5, 2.5), **more: object
) -> RequestRecord:
    """Completed, one token an event, ended with the last."""
    fields: dict[str, object] = {
        "index": 0,
        "intended_s": intended_s,
        "sent_s": intended_s if sent_s is None else sent_s,
        "ended_s": times[-1] if times else intended_s + 1,
        "outcome": Outcome.COMPLETED,
        "prompt_tokens": 10,
        "output_tokens": len(times),
        "token_count": TokenCount.USAGE,
        "event_times_s": times,
        "event_tokens": (1,) * len(times),
        "read_sizes": (1,) * len(times),
    }
    return RequestRecord(**(fields | more))  # type: ignore[arg-type]


def test_latency_counts_from_the_intended_time_and_service_from_the_sending() -> None:
    late = record(intended_s=0.25, sent_s=0.75)
    assert (ttft_s(late), service_ttft_s(late), e2e_s(late)) == (0.75, 0.25, 2.25)
    assert tpot_s(late) == (2.25 - 0.75) / 2
    assert gaps_s(late) == [0.5, 1.0]


def test_one_token_has_no_pace_and_no_answer_no_first_token() -> None:
    assert tpot_s(record(times=(1.0,))) is None
    nothing = record(times=())
    assert (ttft_s(nothing), tpot_s(nothing), worst_mean_gap_s(nothing)) == (None, None, None)


def test_quantiles_are_measured_values() -> None:
    found = spread([float(value) for value in range(1, 1001)])
    assert found is not None
    assert (found.p50, found.p90, found.p95, found.p99, found.p999, found.max) == (500, 900, 950, 990, 999, 1000)
    assert (found.mean, found.num) == (500.5, 1000)
    assert spread([None]) is None


@given(st.lists(st.floats(0, 100), min_size=1))
def test_quantiles_are_ordered_and_inside(values: list[float]) -> None:
    found = spread(values)
    assert found is not None
    ordered = [found.p50, found.p90, found.p95, found.p99, found.p999, found.max]
    assert ordered == sorted(ordered)
    assert set(ordered) <= set(values)


def test_the_worst_tenth_of_the_gaps_is_averaged() -> None:
    times = [0.0]
    for gap in [0.1] * 18 + [1.0, 3.0]:
        times.append(times[-1] + gap)
    assert worst_mean_gap_s(record(times=tuple(times))) == pytest.approx(2.0)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.COMPLETED])
def test_what_was_not_completed_meets_no_target(outcome: Outcome) -> None:
    assert meets(record(), Targets())
    assert not meets(record(outcome=outcome), Targets())


def test_every_target_has_to_be_met() -> None:
    assert meets(record(), Targets(ttft_s=1.0, itl_s=0.75, e2e_s=2.5))
    assert not meets(record(), Targets(ttft_s=0.99))
    assert not meets(record(), Targets(itl_s=0.74))
    assert not meets(record(), Targets(e2e_s=2.49))


def test_the_share_counts_requests_meant_for_the_window_even_if_they_ended_after_it() -> None:
    quick, slow = record(intended_s=1.0, times=(1.1,)), record(intended_s=1.0, times=(9.0,))
    assert share_met([quick, slow], Targets(ttft_s=0.5), Window(0, 2)) == 0.5
    assert summarize([quick, slow], Window(0, 2), Targets(ttft_s=0.5)).num_requests == 1


def test_b069_with_its_numbers_on_a_perfect_clock() -> None:
    """Four at once, 10 s each with a token every 0.1 s, from 0 to 40 s; the window is 5 to 35 s."""
    every = [
        record(
            intended_s=10.0 * turn,
            times=tuple(10.0 * turn + 0.1 * (token + 1) for token in range(100)),
            ended_s=10.0 * (turn + 1),
        )
        for turn in range(4)
        for _ in range(4)
    ]
    summary = summarize(every, Window(5.0, 35.0))
    assert summary.output_tokens_per_s == pytest.approx(40.0, rel=0.01)
    assert summary.ttft_s is not None
    assert summary.e2e_s is not None
    assert (summary.ttft_s.num, summary.e2e_s.num) == (12, 12)
    assert summary.prompt_tokens_per_s == 12 * 10 / 30
    cut = summary.cut
    assert (cut.requests_across_start, cut.requests_across_end) == (4, 4)
    assert cut.tokens_before + cut.tokens_after + round(summary.output_tokens_per_s * 30) == 1600


def test_goodput_is_of_good_requests_alone() -> None:
    good = record(times=(0.5, 1.0, 1.5, 2.0))
    late = record(times=(1.5, 1.6, 2.0))
    summary = summarize([good, late], Window(0, 4), Targets(ttft_s=1.0))
    assert (summary.goodput_requests_per_s, summary.goodput_tokens_per_s) == (0.25, 1.0)
    assert (summary.requests_per_s, summary.output_tokens_per_s) == (0.5, 7 / 4)


def test_the_least_certain_count_marks_the_whole() -> None:
    sure, unsure = record(), record(token_count=TokenCount.ESTIMATE)
    assert summarize([sure, unsure]).token_count is TokenCount.ESTIMATE
    assert summarize([sure, record(token_count=TokenCount.EVENTS)]).token_count is TokenCount.EVENTS
    assert summarize([sure]).token_count is TokenCount.USAGE


@pytest.mark.parametrize(
    ("loads", "throughputs", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 6], [1, 2, 4, 8, 8, 8, 8], 3),
        ([0, 1, 2, 3, 4, 5, 6], [10, 20, 35, 50, 54, 55, 53], 3),
        ([1, 2, 4, 8, 16], [1, 2, 4, 7.5, 7.6], 3),
        ([0, 1, 2, 3], [1, 2, 4, 8], None),
        ([0, 1, 2, 3], [8, 8, 8, 8], None),
        ([0, 1], [1, 2], None),
    ],
)
def test_the_knee_is_where_more_load_stops_paying(
    loads: list[float], throughputs: list[float], expected: int | None
) -> None:
    assert knee_index(loads, throughputs) == expected


def test_the_interval_is_that_of_the_sign_test() -> None:
    assert coverage(6, 0) == 1 - 2 / 64
    assert sign_test_interval([3, 1, 2, 5, 4, 6]) == (1, 6)
    assert sign_test_interval(list(range(1, 12))) == (2, 10)
    assert coverage(11, 1) >= 0.95 > coverage(11, 2)
    assert sign_test_interval([2.0, 1.0]) == (1.0, 2.0)


def test_pairs_without_a_value_are_left_out() -> None:
    found = paired_ratio("TTFT p50", "B", "A", [2.0, 0.0, 6.0], [1.0, 1.0, 2.0])
    assert found is not None
    assert (found.pairs, found.ratio, found.low, found.high) == ((2.0, 3.0), 2.5, 2.0, 3.0)
    assert paired_ratio("TTFT p50", "B", "A", [0.0], [1.0]) is None


def checked(lag_s: float, slip_s: float = 0.0) -> ClientCheck:
    return ClientCheck(lag_s, 2 * lag_s, slip_s, slip_s, busy_share=0.97, num_reads=10)


def test_a_client_that_fell_behind_says_so_loudly() -> None:
    assert warnings(checked(0.001), [record()]) == []
    for check in (checked(0.05), checked(0.0, slip_s=0.05)):
        [loud] = warnings(check, [record()])
        assert loud.startswith("THE CLIENT WAS THE BOTTLENECK")
        assert "97% of a core (it is too slow" in loud
    idle = ClientCheck(0.05, 0.1, 0.0, 0.0, busy_share=0.02, num_reads=10)
    assert "others on its machine" in warnings(idle, [record()])[0]


def test_coalesced_reads_are_told_with_their_likely_cause() -> None:
    bundled = record(read_sizes=(3, 3, 3))
    [said] = warnings(checked(0.0), [bundled])
    assert "100% of events" in said
    assert "the server or the network" in said


def test_a_schedule_is_missed_only_when_sends_fall_behind() -> None:
    kept = [record(intended_s=0.1 * n, sent_s=0.1 * n + 0.05, times=(9.0,)) for n in range(20)]
    assert missed_schedule(kept) is None
    slow = [record(intended_s=0.1 * n, sent_s=0.2 * n, times=(9.0,)) for n in range(20)]
    assert "5.0 requests/s were sent of 10.0/s asked" in (missed_schedule(slow) or "")
    assert warnings(checked(0.0), slow, has_schedule=False) == []
