"""Runs a load against a server: when each request leaves, and the record of what came of it.

*Open loop*: requests leave when the schedule says, whatever happened to the earlier ones; with a bound on connections
they may wait for one, and that wait counts, since latency runs from the intended time. *Closed loop*: N workers, each
sends its next request when it has the answer to the last. A session is a run of requests that wait for each other, with
think time between.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass

import aiohttp

from paceline.bench.endpoint import Abilities, Endpoint
from paceline.bench.exchange import Exchange, encode_body, exchange
from paceline.bench.prompts import prompt_of, request_body
from paceline.bench.record import Outcome, RequestRecord
from paceline.bench.selfcheck import ClientCheck, SelfCheck
from paceline.bench.stream import Answer, count_tokens, decode_gently, spread_tokens
from paceline.workload.item import Session, WorkItem, sessions

OnRecord = Callable[[RequestRecord], None]


@dataclass(frozen=True, slots=True)
class Load:
    """`concurrency`: workers of a closed loop; None: open loop by the items' arrival_s. `duration_s`: nothing is sent
    from then on, what was sent is awaited. `prompt_seed` decides which tokens the segments hold.
    """

    items: Iterable[WorkItem]
    label: str = ""
    concurrency: int | None = None
    duration_s: float | None = None
    max_connections: int | None = None
    timeout_s: float = 600.0
    prompt_seed: int = 0


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What came of a load. Times count from `started_s`, a time.monotonic()."""

    records: tuple[RequestRecord, ...]
    check: ClientCheck
    started_s: float


@dataclass(frozen=True, slots=True)
class Caller:
    """A server that was probed, with open connections to it."""

    session: aiohttp.ClientSession
    endpoint: Endpoint
    abilities: Abilities


async def run_load(
    caller: Caller, load: Load, on_record: OnRecord | None = None, started_s: float | None = None
) -> LoadRun:
    """Run it to the last answer. Two loads at once share the clock that is given as `started_s`."""
    run = _Running(caller, load, on_record)
    run.started_s = run.started_s if started_s is None else started_s
    with run.check.watching():
        await run.to_the_end()
    return LoadRun(tuple(run.records), run.check.verdict(), run.started_s)


class _Running:
    """The state of one load while it runs."""

    def __init__(self, caller: Caller, load: Load, on_record: OnRecord | None) -> None:
        self.records: list[RequestRecord] = []
        self.check = SelfCheck()
        self.started_s = time.monotonic()
        self._caller = caller
        self._load = load
        self._on_record = on_record
        self._decoding = asyncio.Lock()  # one slice of decoding between two rounds of reading, not one a stream
        self._sessions = sessions(load.items)  # one iterator for all workers
        bound = load.max_connections
        self._connection: AbstractAsyncContextManager[object] = (
            nullcontext() if bound is None else asyncio.Semaphore(bound)
        )

    async def to_the_end(self) -> None:
        """Send everything, and wait until everything is recorded."""
        async with asyncio.TaskGroup() as self._recording:
            if self._load.concurrency is None:
                await self.open_loop()
            else:
                await self.closed_loop(self._load.concurrency)

    async def open_loop(self) -> None:
        """Start every session at its arrival."""
        async with asyncio.TaskGroup() as group:
            for session in self._sessions:
                arrival_s = session[0].arrival_s
                assert arrival_s is not None, "an open loop needs arrival times"
                if self._is_over(arrival_s):
                    break
                prepared = self._body(session[0])
                await self._sleep_until(arrival_s)
                self.check.slips_s.append(max(0.0, self._now() - arrival_s))
                group.create_task(self._run_session(session, arrival_s, prepared))

    async def closed_loop(self, num_workers: int) -> None:
        """Workers share the sessions."""
        async with asyncio.TaskGroup() as group:
            for _ in range(num_workers):
                group.create_task(self._work())

    async def _work(self) -> None:
        for session in self._sessions:
            if self._is_over(self._now()):
                return
            prepared = self._body(session[0])
            await self._run_session(session, self._now(), prepared)

    async def _run_session(self, session: Session, intended_s: float, body: bytes) -> None:
        """Turn after turn, also after one that failed: prompts replay a history of the workload, not of the server."""
        for turn, item in enumerate(session):
            if turn:
                body = self._body(item)
                intended_s = self._now() + item.think_s
                if self._is_over(intended_s):
                    return
                await self._sleep_until(intended_s)
            await self._send(item, intended_s, body)

    async def _send(self, item: WorkItem, intended_s: float, body: bytes) -> None:
        async with self._connection:
            result = await exchange(self._caller.session, self._caller.endpoint, body, self._load.timeout_s)
        self._recording.create_task(self._record(item, intended_s, result))

    async def _record(self, item: WorkItem, intended_s: float, result: Exchange) -> None:
        """Apart from the sending, so that the next request does not wait for the decoding of the last."""
        self.check.num_reads += len(result.reads)
        async with self._decoding:
            answer = await decode_gently(result.reads)
        record = record_of(item, intended_s, result, answer, (self._load.label, self.started_s))
        self.records.append(record)
        if self._on_record is not None:
            self._on_record(record)

    def _body(self, item: WorkItem) -> bytes:
        prompt = prompt_of(item, self._load.prompt_seed, self._caller.abilities)
        return encode_body(request_body(self._caller.endpoint, self._caller.abilities, prompt, item.output_tokens))

    def _now(self) -> float:
        return time.monotonic() - self.started_s

    def _is_over(self, time_s: float) -> bool:
        return self._load.duration_s is not None and time_s >= self._load.duration_s

    async def _sleep_until(self, time_s: float) -> None:
        await asyncio.sleep(max(0.0, time_s - self._now()))


def record_of(
    item: WorkItem, intended_s: float, result: Exchange, answer: Answer, load: tuple[str, float]
) -> RequestRecord:
    """An exchange as a record of its load: (label, when it started)."""
    label, started_s = load
    outcome, error = result.outcome, result.error
    if outcome is Outcome.COMPLETED and answer.error is not None:
        outcome, error = Outcome.FAILED, answer.error
    output_tokens, token_count = count_tokens(answer, item.output_tokens)
    usage = answer.usage
    details = usage.prompt_tokens_details if usage else None
    ended_s = answer.end_s if outcome is Outcome.COMPLETED and answer.end_s is not None else result.ended_s
    return RequestRecord(
        index=item.index,
        intended_s=intended_s,
        sent_s=result.sent_s - started_s,
        ended_s=ended_s - started_s,
        outcome=outcome,
        prompt_tokens=usage.prompt_tokens if usage and usage.prompt_tokens else item.prompt_tokens,
        output_tokens=output_tokens,
        token_count=token_count,
        event_times_s=tuple(time_s - started_s for time_s in answer.event_times_s),
        event_tokens=spread_tokens(output_tokens, len(answer.event_times_s)),
        read_sizes=answer.read_sizes,
        cached_tokens=details.cached_tokens if details else None,
        status=result.status,
        error=error,
        label=label,
    )
