"""Recorded inputs through a fresh scheduler: the same plans, and, with the recorded durations, the same latencies.

The step loop is the engine's. Its executor answers with the recorded tokens, checks each plan against the recorded
digest, and moves the virtual clock by the recorded duration. What was in each step comes out beside how long it took:
that is what a step time is fitted to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from paceline.bench.record import Outcome, RequestRecord, TokenCount
from paceline.core.digest import plan_digest
from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.output import SequenceOutput
from paceline.core.plan import RowResult, StepPlan, StepResult, TokenLogprobs
from paceline.core.policy import LearnedReserve
from paceline.core.request import FinishReason, Request, RequestId
from paceline.core.scheduler import Scheduler
from paceline.costs.step import StepWork
from paceline.engine.journal import Header, Line, Step
from paceline.engine.messages import Cancel, Finish, Submit
from paceline.errors import ContextLengthError, PacelineError
from paceline.sim.executor import CostedExecutor, VirtualClock
from paceline.sim.recording import RecordingError

SCORE = TokenLogprobs(0, None)
# Steps whose content is kept: more would not make a fit better.
MAX_SAMPLES = 20_000


class PlanDiffersError(PacelineError):
    """A fresh scheduler decided something else than the recorded one."""


class RecordedExecutor:
    """Answers the next plan with `step`, the recorded one, and costs it as recorded."""

    def __init__(self, num_rows: int, clock: VirtualClock) -> None:
        self.step: Step | None = None
        self.samples: list[tuple[StepWork, float]] = []
        # It counts what is in a plan and moves the clock; its answers are not the recorded ones.
        self._costed = CostedExecutor(num_rows, self, clock, lambda sequence_id: 0)

    def step_s(self, work: StepWork) -> float:
        """The recorded duration, whatever was in the step."""
        assert self.step is not None, "a recorded step must be set before a plan is answered"
        if len(self.samples) < MAX_SAMPLES:
            self.samples.append((work, self.step.duration_s))
        return self.step.duration_s

    def execute(self, plan: StepPlan) -> StepResult:
        """The recorded answer. Raises PlanDiffersError."""
        step = self.step
        assert step is not None, "a recorded step must be set before a plan is answered"
        if plan_digest(plan) != step.digest or len(step.sampled) != len(plan.rows):
            raise PlanDiffersError(
                f"step {plan.step_index}: the recorded plan has {len(step.sampled)} rows and digest {step.digest}, "
                f"this scheduler's has {len(plan.rows)} rows, {plan.num_tokens} tokens and digest {plan_digest(plan)}"
            )
        self._costed.execute(plan)
        ends, scores = dict(step.ends), dict(step.scores)
        return StepResult(
            tuple(
                RowResult(
                    row.row,
                    tuple(TokenLogprobs(token, None) for token in sampled),
                    (SCORE,) * scores.get(position, 0),
                    ends.get(position),
                )
                for position, (row, sampled) in enumerate(zip(plan.rows, step.sampled, strict=True))
            )
        )


@dataclass(slots=True)
class Stream:
    """One choice of a recorded request and when its tokens came."""

    request: Request
    times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    num_cached: int = 0


class Replay:
    """One part of a recording, line by line. `streams` are those under way; ended ones are handed out."""

    def __init__(self, header: Header) -> None:
        self.clock = VirtualClock()
        self.num_steps = 0
        kv = KvManager(header.num_blocks, header.block_size)
        self.scheduler = Scheduler(header.limits, kv, LearnedReserve(header.block_size))
        self._executor = RecordedExecutor(header.max_num_seqs, self.clock)
        self._loop = StepLoop(self.scheduler, self._executor)
        self._streams: dict[tuple[RequestId, int], Stream] = {}

    @property
    def samples(self) -> list[tuple[StepWork, float]]:
        """What was in the first steps, and how long each took."""
        return self._executor.samples

    def apply(self, line: Line) -> Iterator[RequestRecord]:
        """Give the scheduler a recorded input; requests that ended by it. Raises PlanDiffersError."""
        match line:
            case Submit():
                self._submit(line.request())
            case Cancel(request_id):
                for output in self.scheduler.cancel(request_id):
                    yield self._end(output.request_id, output.choice_index, Outcome.FAILED)
            case Finish(request_id, choice_index):
                self.scheduler.finish(request_id, choice_index)
                if (request_id, choice_index) in self._streams:
                    yield self._end(request_id, choice_index, Outcome.COMPLETED)
            case Step():
                yield from self._step(line)

    def _submit(self, request: Request) -> None:
        request_id = request.request_id
        if request_id in self.scheduler.requests:
            raise RecordingError(f"recording: request {request_id} is submitted again while it runs; record anew")
        try:
            self.scheduler.submit(request)
        except ContextLengthError as error:
            raise PlanDiffersError(
                f"request {request_id} was taken when recorded, this scheduler refuses it: {error.message}"
            ) from error
        for choice_index in range(request.num_sequences):
            self._streams[request.request_id, choice_index] = Stream(request)

    def _step(self, step: Step) -> Iterator[RequestRecord]:
        self.clock.now_s = max(self.clock.now_s, step.ready_s)
        self._executor.step = step
        self.num_steps += 1
        if not self.scheduler.has_work():
            raise PlanDiffersError(
                f"recorded step {self.num_steps} has {len(step.sampled)} rows, this scheduler has nothing to do"
            )
        for output in self._loop.step(self.clock.now_s):
            yield from self._take(output)

    def _take(self, output: SequenceOutput) -> Iterator[RequestRecord]:
        stream = self._streams[output.request_id, output.choice_index]
        stream.times_s += [self.clock.now_s] * (len(output.tokens) > 0)
        stream.tokens += [len(output.tokens)] * (len(output.tokens) > 0)
        stream.num_cached = output.num_cached_tokens
        if output.finish_reason is not None:
            outcome = Outcome.FAILED if output.finish_reason is FinishReason.ERROR else Outcome.COMPLETED
            yield self._end(output.request_id, output.choice_index, outcome)

    def _end(self, request_id: RequestId, choice_index: int, outcome: Outcome) -> RequestRecord:
        stream = self._streams.pop((request_id, choice_index))
        return RequestRecord(
            index=request_id,
            intended_s=stream.request.arrival_s,
            sent_s=stream.request.arrival_s,
            ended_s=stream.times_s[-1] if stream.times_s else self.clock.now_s,
            outcome=outcome,
            prompt_tokens=len(stream.request.prompt),
            output_tokens=sum(stream.tokens),
            token_count=TokenCount.USAGE,
            event_times_s=tuple(stream.times_s),
            event_tokens=tuple(stream.tokens),
            read_sizes=(1,) * len(stream.tokens),
            cached_tokens=stream.num_cached,
            error=None if outcome is Outcome.COMPLETED else "cancelled or ended by an error",
        )


@dataclass(slots=True)
class ReplayedPart:
    """What came of one part of a recording."""

    num_steps: int = 0
    num_requests: int = 0
    num_preemptions: int = 0
    busy_s: float = 0.0
    records: list[RequestRecord] = field(default_factory=list)
    samples: list[tuple[StepWork, float]] = field(default_factory=list)


def replay_all(lines: Iterable[Line], keeps_records: bool = False) -> list[ReplayedPart]:
    """Every part through a scheduler of its own. Raises PlanDiffersError at the first plan that differs."""
    parts: list[ReplayedPart] = []
    replay: Replay | None = None
    for line in lines:
        if isinstance(line, Header):
            replay = Replay(line)
            parts.append(ReplayedPart())
            continue
        assert replay is not None, "a recording begins with a header"
        part = parts[-1]
        part.num_requests += isinstance(line, Submit)
        for record in replay.apply(line):
            if keeps_records:
                part.records.append(record)
        part.num_steps, part.busy_s = replay.num_steps, replay.clock.busy_s
        part.num_preemptions, part.samples = replay.scheduler.num_preemptions, replay.samples
    return parts
