"""The journal of a scheduler: everything that went into it, so that another one can be given the same.

One JSON object a line: a Header with the scheduler's sizes, then commands as they took effect and steps with what
they sampled and how long they took. No plans: a plan follows from the inputs, and is only fingerprinted. A file is
appended to; each start of an engine begins a new part with its own Header. It holds the token ids of prompts
and answers: treat it like the texts themselves.

Lines are buffered, at most BUFFER_BYTES, and written out when the buffer is full or the scheduler has nothing left to
do. A disk that fails ends the journal, not the server.
"""

import logging
import time
from pathlib import Path
from typing import Protocol

import msgspec

from paceline import __version__
from paceline.core.digest import plan_digest
from paceline.core.loop import StepScheduler
from paceline.core.output import SequenceOutput
from paceline.core.plan import StepPlan, StepResult
from paceline.core.request import FinishReason, Request, RequestId
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.engine.messages import Cancel, Finish, Submit
from paceline.errors import ConfigError

log = logging.getLogger(__name__)

FORMAT_VERSION = 1
BUFFER_BYTES = 2**16


class Header(msgspec.Struct, frozen=True, tag=True):
    """A scheduler's sizes. Its reserve is the learned one and its order the default: the engine has no others."""

    version: int
    paceline: str
    max_num_seqs: int
    max_step_tokens: int
    max_context: int
    num_blocks: int
    block_size: int

    @classmethod
    def of(cls, scheduler: Scheduler) -> "Header":
        """The header of a fresh scheduler's journal."""
        limits, kv = scheduler.limits, scheduler.kv
        return cls(
            version=FORMAT_VERSION,
            paceline=__version__,
            max_num_seqs=limits.max_num_seqs,
            max_step_tokens=limits.max_step_tokens,
            max_context=limits.max_context,
            num_blocks=kv.pool.num_blocks,
            block_size=kv.block_size,
        )

    @property
    def limits(self) -> SchedulerLimits:
        """What the scheduler was made with."""
        return SchedulerLimits(self.max_num_seqs, self.max_step_tokens, self.max_context)


class Step(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One step. `ready_s`: when it could have begun (the last one had ended and there was work), on the clock of the
    requests' arrivals; `duration_s`: from then until its outputs were ready. For each row of the plan, in its order,
    `sampled` has the token ids; `ends` and `scores` have (position, value) where a row ended by itself or scored its
    prompt. `digest` is that of the plan.
    """

    ready_s: float
    duration_s: float
    digest: str
    sampled: list[list[int]]
    ends: list[tuple[int, FinishReason]] = []
    scores: list[tuple[int, int]] = []


Line = Header | Submit | Cancel | Finish | Step


class Journal:
    """The file, opened only to append what is buffered. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buffer = bytearray()
        self._encoder = msgspec.json.Encoder()
        self._is_broken = False
        try:
            self._append()
        except OSError as error:
            raise ConfigError(f"--record {path}: {error.strerror or error}") from error

    def write(self, line: Line) -> None:
        """Append a line, sooner or later."""
        self._buffer += self._encoder.encode(line) + b"\n"
        if len(self._buffer) > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write out what is buffered."""
        if not self._is_broken:
            try:
                self._append()
            except OSError as error:
                self._is_broken = True
                log.error("--record %s: %s; nothing more is recorded", self._path, error.strerror or error)
        self._buffer.clear()

    def _append(self) -> None:
        with self._path.open("ab") as file:
            file.write(self._buffer)


class InputScheduler(StepScheduler, Protocol):
    """All the ways into a scheduler."""

    def submit(self, request: Request) -> None:
        """Queue a request."""
        ...

    def cancel(self, request_id: RequestId) -> list[SequenceOutput]:
        """End what is left of a request."""
        ...

    def finish(self, request_id: RequestId, choice_index: int) -> None:
        """A choice has ended outside."""
        ...


class JournaledScheduler:
    """A scheduler whose inputs are written down; it decides nothing."""

    def __init__(self, scheduler: Scheduler, journal: Journal) -> None:
        self._scheduler = scheduler
        self._journal = journal
        self._ready_s = time.monotonic()
        journal.write(Header.of(scheduler))

    def submit(self, request: Request) -> None:
        """Queue a request, and write down that it was."""
        was_idle = not self._scheduler.has_work()
        self._scheduler.submit(request)
        if was_idle:
            self._ready_s = time.monotonic()
        self._journal.write(Submit.of(request))

    def cancel(self, request_id: RequestId) -> list[SequenceOutput]:
        """End what is left of a request."""
        self._journal.write(Cancel(request_id))
        return self._scheduler.cancel(request_id)

    def finish(self, request_id: RequestId, choice_index: int) -> None:
        """A choice has ended outside."""
        self._journal.write(Finish(request_id, choice_index, 0))
        self._scheduler.finish(request_id, choice_index)

    def schedule(self, now_s: float = 0.0) -> StepPlan | None:
        """Decide the next step."""
        return self._scheduler.schedule(now_s)

    def update(self, plan: StepPlan, result: StepResult) -> list[SequenceOutput]:
        """Record what came of it, here and in the journal."""
        outputs = self._scheduler.update(plan, result)
        rows = result.rows
        ready_s, self._ready_s = self._ready_s, time.monotonic()
        self._journal.write(
            Step(
                ready_s=ready_s,
                duration_s=self._ready_s - ready_s,
                digest=plan_digest(plan),
                sampled=[[token.token_id for token in row.sampled] for row in rows],
                ends=[(position, row.end) for position, row in enumerate(rows) if row.end is not None],
                scores=[(position, len(row.prompt_scores)) for position, row in enumerate(rows) if row.prompt_scores],
            )
        )
        if not self._scheduler.has_work():
            self._journal.flush()
        return outputs
