"""Field cases B065, B067 and B069, with their numbers."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from mocks import RunningMock, items, run_against
from paceline.bench.load import Load
from paceline.bench.measures import Window, summarize, tpot_s
from paceline.bench.record import TokenCount
from paceline.bench.selfcheck import warnings

Mocked = Callable[..., RunningMock]


def test_b065_a_queue_in_front_of_the_client_does_not_hide(mock: Mocked) -> None:
    server = mock(first_s=0.190, gap_s=0.0)
    run = run_against(server, Load(items(50, output_tokens=1, gap_s=0.05), max_connections=1))
    summary = summarize(run.records)
    assert summary.e2e_s
    assert summary.service_e2e_s
    # Request i ends 0.19 (i + 1) after the start and was meant for 0.05 i.
    assert summary.e2e_s.p50 == pytest.approx(0.19 + 0.14 * 24.5, rel=0.05)
    assert summary.e2e_s.max == pytest.approx(0.19 + 0.14 * 49, rel=0.05)
    assert summary.service_e2e_s.p50 == pytest.approx(0.190, rel=0.05)
    assert summary.requests_per_s == pytest.approx(5.26, rel=0.05)
    [loud] = [line for line in warnings(run.load.check, run.records) if "SCHEDULE WAS NOT KEPT" in line]
    assert "of 20.0/s asked" in loud
    assert "5.2 requests/s were sent" in loud or "5.1 requests/s were sent" in loud
    assert not run.load.check.was_bottleneck or "THE CLIENT" in warnings(run.load.check, run.records)[0]


def test_b065_a_schedule_that_is_kept_is_not_complained_about(mock: Mocked) -> None:
    run = run_against(mock(first_s=0.02, gap_s=0.0), Load(items(30, output_tokens=1, gap_s=0.1)))
    assert not any("SCHEDULE" in line for line in warnings(run.load.check, run.records))


@pytest.mark.parametrize(
    ("law", "num_tokens"),
    [
        ({"text": " ", "num_chunks": 20}, 20),
        ({"text": " a b c", "num_chunks": 10, "tokens_per_chunk": 3}, 30),
    ],
)
def test_b067_tokens_come_from_usage_not_from_text_or_chunks(
    mock: Mocked, law: dict[str, object], num_tokens: int
) -> None:
    run = run_against(mock(first_s=0.05, gap_s=0.02, **law), Load(items(3, output_tokens=num_tokens), concurrency=1))
    summary = summarize(run.records)
    for record in run.records:
        assert (record.output_tokens, record.token_count) == (num_tokens, TokenCount.USAGE)
        assert sum(record.event_tokens) == num_tokens
        ttft = record.event_times_s[0] - record.intended_s
        assert tpot_s(record) == pytest.approx((record.ended_s - record.intended_s - ttft) / (num_tokens - 1))
    assert summary.peak_output_tokens_per_s >= summary.output_tokens_per_s
    assert summary.tokens_per_event == num_tokens / len(run.records[0].event_tokens)


def test_b067_without_usage_the_count_is_marked_as_an_estimate(mock: Mocked) -> None:
    server = mock(num_chunks=10, tokens_per_chunk=3, reports_usage=False, gap_s=0.01, finish_reason="stop")
    run = run_against(server, Load(items(2, output_tokens=30), concurrency=1))
    assert summarize(run.records).token_count is TokenCount.ESTIMATE
    assert {record.output_tokens for record in run.records} == {10}
    assert any("usage" in note for note in run.abilities.notes)


def test_b067_without_usage_a_full_answer_of_one_event_a_token_is_verified(mock: Mocked) -> None:
    run = run_against(mock(reports_usage=False, gap_s=0.01), Load(items(2, output_tokens=8), concurrency=1))
    assert summarize(run.records).token_count is TokenCount.EVENTS
    assert {record.output_tokens for record in run.records} == {8}


def test_b069_events_count_by_their_own_time(mock: Mocked) -> None:
    """Four at once, each 10 s long, 40 s: warm-up 5, measured 30, cool-down 5."""
    num_tokens, gap_s = 100, 0.1
    server = mock(first_s=gap_s, gap_s=gap_s, is_precise=False)
    load = Load(items(1000, num_tokens), concurrency=4, duration_s=39.5)
    run = run_against(server, load)
    window = Window(5.0, 35.0)
    summary = summarize(run.records, window)
    log = server.log()
    sent = [time_s - run.load.started_s for entry in log for time_s, _ in entry["sends"]][1:]
    in_window = sum(window.holds(time_s) for time_s in sent)
    assert len(run.records) == 16
    assert summary.output_tokens_per_s == pytest.approx(in_window / 30, rel=0.01)
    assert summary.output_tokens_per_s == pytest.approx(4 / gap_s, rel=0.01)
    assert summary.ttft_s
    assert summary.e2e_s
    # First tokens at about 0.1, 10.1, 20.1, 30.2; ends at about 10, 20, 30, 40.
    assert (summary.ttft_s.num, summary.e2e_s.num) == (12, 12)
    assert summary.e2e_s.p50 == pytest.approx(10.0, rel=0.01)
    assert summary.prompt_tokens_per_s == 12 * 24 / 30
    assert (summary.cut.requests_across_start, summary.cut.requests_across_end) == (4, 4)
    outside = 4 * 4 * num_tokens - in_window
    assert summary.cut.tokens_before + summary.cut.tokens_after == pytest.approx(outside, abs=8)
    whole = summarize([replace(record, label="again") for record in run.records])
    assert whole.num_requests == 16
