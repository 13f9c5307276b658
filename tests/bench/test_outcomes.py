"""What goes wrong is recorded apart and misses every target; nothing a server saw is sent twice, nothing dropped."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from mocks import RunningMock, items, run_against
from paceline.bench.endpoint import Endpoint
from paceline.bench.exchange import exchange, open_session
from paceline.bench.load import Load
from paceline.bench.measures import summarize
from paceline.bench.record import Outcome
from paceline.bench.result import Targets

Mocked = Callable[..., RunningMock]
EASY = Targets(ttft_s=100.0, itl_s=100.0, e2e_s=100.0)


def test_rejections_and_failures_are_told_apart_and_miss_every_target(mock: Mocked) -> None:
    server = mock(statuses=[200, 429, 200, 500, 503, 200], first_s=0.01, gap_s=0.0)
    run = run_against(server, Load(items(6, output_tokens=1), concurrency=1))
    outcomes = Counter(record.outcome for record in run.records)
    assert outcomes == {Outcome.COMPLETED: 3, Outcome.REJECTED: 2, Outcome.FAILED: 1}
    assert len(server.log()) == 3 + 2, "refused requests never come again"
    for targets in (EASY, Targets()):
        summary = summarize(run.records, targets=targets)
        assert summary.share_met == 0.5
        assert summary.num_requests == 6
    assert all(record.error and record.status for record in run.records if record.outcome is not Outcome.COMPLETED)


def test_a_time_out_is_one(mock: Mocked) -> None:
    run = run_against(mock(first_s=0.05, gap_s=0.2), Load(items(2, output_tokens=50), concurrency=2, timeout_s=0.5))
    for record in run.records:
        assert record.outcome is Outcome.TIMED_OUT
        assert record.ended_s - record.sent_s == pytest.approx(0.5, abs=0.1)
        assert len(record.event_times_s) == 3
    summary = summarize(run.records, targets=EASY)
    assert (summary.share_met, summary.e2e_s, summary.goodput_tokens_per_s) == (0.0, None, 0.0)
    assert summary.output_tokens_per_s > 0


def test_a_stream_that_breaks_off_has_failed(mock: Mocked) -> None:
    run = run_against(mock(first_s=0.01, gap_s=0.01, breaks_after=3), Load(items(1, output_tokens=9), concurrency=1))
    [record] = run.records
    assert record.outcome is Outcome.FAILED
    assert record.output_tokens == 3
    assert record.error


def test_a_server_that_is_gone_fails_every_request(mock: Mocked) -> None:
    server = mock(first_s=0.3, gap_s=0.0)
    run = run_against(server, Load(items(3, output_tokens=1, gap_s=0.1), timeout_s=0.05))
    assert {record.outcome for record in run.records} == {Outcome.TIMED_OUT}


def test_a_server_that_closes_connections_it_promised_to_keep_loses_no_request() -> None:
    """As llama.cpp's server does after a stream."""
    answer = b'data: {"choices":[{"text":"a"}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nKeep-Alive: timeout=5\r\nContent-Length: %d\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int((await reader.readuntil(b"\r\n\r\n")).lower().split(b"content-length: ")[1].split()[0])
        await reader.readexactly(length)
        writer.write(head % len(answer) + answer)
        writer.close()

    async def ask() -> list[Outcome]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            endpoint = Endpoint(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
            async with open_session(endpoint) as session:
                return [(await exchange(session, endpoint, b"{}", 10)).outcome for _ in range(30)]

    assert set(asyncio.run(ask())) == {Outcome.COMPLETED}
