"""Whole experiments against servers whose answer is known."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mocks import RunningMock, preferred
from paceline.bench import goodput, selfcheck
from paceline.bench.alternate import measure_compare, measure_prefix
from paceline.bench.endpoint import BenchError, Endpoint
from paceline.bench.experiment import Settings, Spot, hold, measure_run, open_caller
from paceline.bench.goodput import measure_goodput
from paceline.bench.hol import measure_hol, stall_of
from paceline.bench.jsonl import read_result, write_result
from paceline.bench.load import Caller
from paceline.bench.measures import summarize
from paceline.bench.record import RequestRecord
from paceline.bench.recorded import compare_recorded
from paceline.bench.replay import measure_replay, read_trace
from paceline.bench.result import Result, Targets
from paceline.bench.sweep import measure_rates, measure_sweep
from paceline.workload.arrivals import ClosedLoop, Constant, Poisson
from paceline.workload.distributions import Fixed
from paceline.workload.lengths import Lengths
from paceline.workload.sessions import Sessions
from paceline.workload.workload import Workload

Mocked = Callable[..., RunningMock]
QUICK = Settings(Workload(Lengths(Fixed(16), Fixed(5)), Constant(1.0)), duration_s=1.5, warmup_s=0.3)
# 50 ms an answer, 4 at a time: 80 requests/s and no more.
BOUNDED: dict[str, Any] = {"first_s": 0.01, "gap_s": 0.01, "slots": 4, "is_precise": False}


@pytest.fixture(autouse=True)
def on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this machine has a core to spare for the client is not the question here."""
    monkeypatch.setattr(selfcheck, "MAX_LAG_S", 1.0)


def measure(mocks: Sequence[RunningMock], measure_on: Callable[[list[Caller]], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with AsyncExitStack() as stack:
            callers = [await stack.enter_async_context(open_caller(Endpoint(mock.url))) for mock in mocks]
            return await measure_on(callers)

    with preferred():
        return asyncio.run(run())


def test_a_sweep_finds_the_knee_where_the_server_is_full(mock: Mocked) -> None:
    result: Result = measure([mock(**BOUNDED)], lambda c: measure_sweep(c[0], QUICK, [1, 2, 4, 8, 16]))
    assert result.header.knee == "concurrency 4"
    limits = [point.limited_by for point in result.header.points]
    assert limits[0].startswith("below the knee")
    assert "server is the limit" in limits[-1]
    assert {record.label for record in result.records} == {point.label for point in result.header.points}


def test_a_sweep_of_rates_goes_on_until_the_server_no_longer_keeps_up(mock: Mocked) -> None:
    result: Result = measure([mock(**BOUNDED)], lambda c: measure_rates(c[0], QUICK, []))
    *kept, last = result.header.points
    assert kept
    assert last.rate_per_s is not None
    assert last.rate_per_s > 80
    assert "queue grew" in last.limited_by or "server is the limit" in last.limited_by


def test_goodput_is_found_where_the_queue_breaks_the_target(mock: Mocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goodput, "PRECISION", 0.2)
    settings = replace(QUICK, targets=Targets(ttft_s=0.05))
    result: Result = measure([mock(**BOUNDED)], lambda c: measure_goodput(c[0], settings, 0.9))
    [best] = [point for point in result.header.points if point.label == result.header.knee]
    assert best.rate_per_s == pytest.approx(80, rel=0.25)


def test_goodput_without_a_target_is_refused(mock: Mocked) -> None:
    with pytest.raises(BenchError, match="--ttft"):
        measure([mock()], lambda c: measure_goodput(c[0], QUICK, 0.9))


def test_hol_measures_the_stall_that_a_long_prompt_makes(mock: Mocked) -> None:
    settings = replace(QUICK, workload=Workload(Lengths(Fixed(8), Fixed(60)), Poisson(1.0)), duration_s=3.0)
    server = mock(first_s=0.02, gap_s=0.02, stall_prompt_tokens=500, stall_s=0.5, is_precise=False)
    result: Result = measure([server], lambda c: measure_hol(c[0], settings, 4, 600))
    [point] = result.header.points
    stall = stall_of(result.records, point.injected)
    assert stall is not None
    assert stall.before
    assert stall.after
    assert stall.stall_s == pytest.approx(0.5, abs=0.05)
    assert stall.long_ttft_s == pytest.approx(0.52, abs=0.05)
    assert stall.before.p50 == pytest.approx(0.02, abs=0.003)
    assert stall.after.max < 0.2


def test_compare_takes_turns_and_finds_the_ratio(mock: Mocked) -> None:
    slow, fast = mock(first_s=0.04, gap_s=0.04), mock(first_s=0.02, gap_s=0.02)
    settings = replace(QUICK, duration_s=0.8)
    result: Result = measure([slow, fast], lambda c: measure_compare(c, settings, [2], 3))
    order = [point.server for point in result.header.points]
    assert order == [slow.url, fast.url, fast.url, slow.url, slow.url, fast.url]
    by_measure = {ratio.measure: ratio for ratio in result.header.ratios}
    assert len(by_measure["ITL p50"].pairs) == 3
    assert by_measure["ITL p50"].ratio == pytest.approx(0.5, rel=0.1)
    assert by_measure["output tokens/s"].ratio == pytest.approx(2.0, rel=0.15)
    prompts = [[entry["body"]["prompt"] for entry in server.log()[2:]] for server in (slow, fast)]
    assert prompts[0][:2] == prompts[1][:2], "both are asked the same"
    for asked in prompts:
        assert len({tuple(prompt) for prompt in asked}) == len(asked), "and nothing twice"


def test_recorded_results_are_compared_at_their_common_loads(mock: Mocked, tmp_path: Path) -> None:
    paths = []
    for name, gap_s in (("slow", 0.04), ("fast", 0.02)):
        server = mock(first_s=gap_s, gap_s=gap_s)
        result: Result = measure([server], lambda c: measure_run(c[0], QUICK, Spot("two", concurrency=2)))
        paths.append(tmp_path / f"{name}.jsonl")
        write_result(paths[-1], result)
    both = compare_recorded({path.stem: read_result(path) for path in paths})
    [ratio] = [ratio for ratio in both.header.ratios if ratio.measure == "ITL p50"]
    assert ratio.ratio == pytest.approx(0.5, rel=0.1)
    assert all("different times" in point.warnings[-1] for point in both.header.points)


def test_prefix_shares_what_it_says_and_repeats_nothing_else(mock: Mocked) -> None:
    server = mock(first_s=0.005, gap_s=0.002, is_precise=False)
    settings = replace(QUICK, workload=Workload(Lengths(Fixed(40), Fixed(2)), Poisson(1.0)), duration_s=0.5)
    settings = replace(settings, warmup_s=0.1)
    result: Result = measure([server], lambda c: measure_prefix(c, settings, 2, [0.0, 0.5], 2))
    assert [point.shared_share for point in result.header.points] == [0.0, 0.5, 0.5, 0.0]
    prompts = [tuple(entry["body"]["prompt"]) for entry in server.log()[2:]]
    assert len(set(prompts)) == len(prompts)
    heads = [prompt[:20] for prompt in prompts]
    assert {heads.count(head) for head in heads if heads.count(head) > 1} != set()
    shared = {head for head in heads if heads.count(head) > 1}
    assert len(shared) == 2, "one shared text a round, a new one each"
    assert {ratio.label for ratio in result.header.ratios} == {"50% shared"}


def test_replay_keeps_the_times_of_the_trace(mock: Mocked, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.0,12,3\n2023-11-16 18:17:03.4,20,2\n2023-11-16 18:17:03.5,7,4\n"
    )
    server = mock(first_s=0.01, gap_s=0.01)
    settings = replace(QUICK, warmup_s=0.0)
    result: Result = measure([server], lambda c: measure_replay(c[0], settings, "trace", read_trace(trace, None)))
    records = sorted(result.records, key=lambda record: record.index)
    assert [record.intended_s for record in records] == pytest.approx([0.0, 0.4, 0.5])
    assert [record.sent_s for record in records] == pytest.approx([0.0, 0.4, 0.5], abs=0.05)
    assert [record.prompt_tokens for record in records] == [12, 20, 7]
    assert [record.output_tokens for record in records] == [3, 2, 4]


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(BenchError, match="no known format"):
        read_trace(path, None)


def test_turns_of_a_session_wait_for_each_other_and_think(mock: Mocked) -> None:
    workload = Workload(
        Lengths(Fixed(10), Fixed(3)), ClosedLoop(2), sessions=Sessions(num_turns=Fixed(3), think_s=Fixed(0.1))
    )
    settings = replace(QUICK, workload=workload, num_requests=6, warmup_s=0.0)
    held: Any = measure([mock(first_s=0.02, gap_s=0.01)], lambda c: hold(c[0], settings, Spot("s", concurrency=2)))
    records: list[RequestRecord] = sorted(held.records, key=lambda record: record.index)
    for before, after in ((0, 1), (1, 2), (3, 4), (4, 5)):
        assert records[after].intended_s - records[before].ended_s == pytest.approx(0.1, abs=0.02)
    assert [record.prompt_tokens for record in records[:3]] == [10, 23, 36]
    assert abs(records[0].sent_s - records[3].sent_s) < 0.05
    assert summarize(records).num_requests == 6
