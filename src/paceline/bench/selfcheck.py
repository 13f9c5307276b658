"""Watches the client while it measures: a load generator that falls behind reports its own delay as the server's.

Three signs. *Lag*: how late a task that only sleeps wakes up, which is how late a read can be seen. *Slip*: how late a
request left the schedule, before any wait for a connection. *Coalesced reads*: events that arrived together, so that
the gaps between them are lost.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from paceline.bench.measures import coalesced_share, quantile
from paceline.bench.record import RequestRecord

TICK_S = 0.02
MAX_LAG_S = 0.010
MAX_COALESCED = 0.05
# Of a core: a client that uses less and is late still is kept from running.
BUSY = 0.7
# Of the rate asked for; below it a run has not kept its schedule.
MIN_ACHIEVED = 0.95


@dataclass(frozen=True, slots=True)
class ClientCheck:
    """How far the client itself was behind. p99 and worst, in seconds; `busy_share`: of one core."""

    lag_p99_s: float
    lag_max_s: float
    slip_p99_s: float
    slip_max_s: float
    busy_share: float
    num_reads: int

    @property
    def was_bottleneck(self) -> bool:
        """Whether times are late because of the client."""
        return max(self.lag_p99_s, self.slip_p99_s) > MAX_LAG_S


@dataclass(slots=True)
class SelfCheck:
    """Collects while a load runs."""

    lags_s: list[float] = field(default_factory=list)
    slips_s: list[float] = field(default_factory=list)
    num_reads: int = 0
    _started_s: float = field(default_factory=time.monotonic)
    _cpu_started_s: float = field(default_factory=time.process_time)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Tick while the body runs."""
        ticking = asyncio.ensure_future(self._tick())
        try:
            yield
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        while True:
            due_s = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self.lags_s.append(max(0.0, time.monotonic() - due_s))

    def verdict(self) -> ClientCheck:
        """What was seen since the start."""
        lags, slips = sorted(self.lags_s) or [0.0], sorted(self.slips_s) or [0.0]
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        return ClientCheck(
            lag_p99_s=quantile(lags, 0.99),
            lag_max_s=lags[-1],
            slip_p99_s=quantile(slips, 0.99),
            slip_max_s=slips[-1],
            busy_share=(time.process_time() - self._cpu_started_s) / elapsed_s,
            num_reads=self.num_reads,
        )


def warnings(check: ClientCheck, records: Sequence[RequestRecord], has_schedule: bool = True) -> list[str]:
    """What the reader of the numbers has to know, loudest first. Empty: the client kept up. A closed loop has no
    schedule to keep.
    """
    found = []
    if check.was_bottleneck:
        cause = "it is too slow for this load" if check.busy_share > BUSY else "others on its machine take its core"
        found.append(
            f"THE CLIENT WAS THE BOTTLENECK: its event loop woke up to {1e3 * check.lag_max_s:.0f} ms late (p99 "
            f"{1e3 * check.lag_p99_s:.0f} ms), sends left up to {1e3 * check.slip_max_s:.0f} ms late (p99 "
            f"{1e3 * check.slip_p99_s:.0f} ms), and it used {check.busy_share:.0%} of a core ({cause}); "
            "latencies are too high"
        )
    missed = missed_schedule(records) if has_schedule else None
    if missed is not None:
        found.append(missed)
    share = coalesced_share(records)
    if share > MAX_COALESCED:
        source = "the client fell behind" if check.was_bottleneck else "the server or the network bundles them"
        found.append(f"{share:.0%} of events came in one read with others ({source}): gaps between those are lost")
    return found


def missed_schedule(records: Sequence[RequestRecord]) -> str | None:
    """Whether requests were sent at a lower rate than the schedule asked for."""
    intended = sorted(record.intended_s for record in records)
    sent = sorted(record.sent_s for record in records)
    if len(records) < 2 or intended[-1] <= intended[0] or sent[-1] <= sent[0]:
        return None
    asked = (len(records) - 1) / (intended[-1] - intended[0])
    achieved = (len(records) - 1) / (sent[-1] - sent[0])
    latest_s = max(record.sent_s - record.intended_s for record in records)
    if achieved >= MIN_ACHIEVED * asked or latest_s <= MAX_LAG_S:
        return None
    return (
        f"THE SCHEDULE WAS NOT KEPT: {achieved:.1f} requests/s were sent of {asked:.1f}/s asked, the latest "
        f"{latest_s:.2f} s late; latencies count from the intended time"
    )
