"""Asks the engine how it is, at scrape time, and never waits long for the answer.

Counters go on across engine processes: what a dead one had counted when it was last asked is added to what its
successor counts. What it counted after that died with it.
"""

import asyncio
from dataclasses import dataclass

from paceline.engine.client import EngineClient
from paceline.engine.contract import EngineCounters, EngineGauges
from paceline.errors import UnavailableError

ANSWER_WITHIN_S = 2.0
"""An engine answers between two steps; one that takes longer than this is reported as not answering."""


@dataclass(frozen=True, slots=True)
class EngineReading:
    """The engine as a scrape finds it. `gauges` None: it is loading, dead or does not answer."""

    gauges: EngineGauges | None
    counters: EngineCounters
    num_restarts: int
    num_open_requests: int


class EngineReader:
    """Reads one client's engine, process after process."""

    def __init__(self, client: EngineClient) -> None:
        self._client = client
        self._of_the_dead = EngineCounters()
        self._last = EngineCounters()
        self._process_number = client.num_restarts

    async def read(self) -> EngineReading:
        """The state now, or what is known of it after a bounded wait."""
        gauges = await self._ask()
        if gauges is not None:
            if self._process_number != self._client.num_restarts:
                self._of_the_dead = self._of_the_dead.plus(self._last)
                self._process_number = self._client.num_restarts
            self._last = gauges.counters
        return EngineReading(
            gauges,
            self._of_the_dead.plus(self._last),
            self._client.num_restarts,
            self._client.num_open_requests,
        )

    async def _ask(self) -> EngineGauges | None:
        try:
            return await asyncio.wait_for(self._client.gauges(), ANSWER_WITHIN_S)
        except (UnavailableError, TimeoutError):
            return None
