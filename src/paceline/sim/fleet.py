"""Replicas behind a router on one virtual timeline: the discrete events of a simulation.

Events, at one time in this order: a step's end (its outputs are delivered, and whoever waited for them goes on), a
prompt's KV that reaches a decode replica, an arrival, a step's start. So a router sees what was delivered, never what
a running step will bring; a request that arrives during a step is seen by the next, and one that arrives as a step
starts is in it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from heapq import heappop, heappush
from itertools import count

from paceline.bench.record import Outcome, RequestRecord, TokenCount
from paceline.core.output import SequenceOutput
from paceline.core.request import Request, RequestId, SequenceId
from paceline.errors import ContextLengthError
from paceline.sim.handoff import Handoff
from paceline.sim.replica import Replica
from paceline.sim.requests import Requests
from paceline.sim.router import Router
from paceline.workload.item import Session, WorkItem, sessions

BAD_REQUEST = 400
UNKNOWN = SequenceId(0)


class Kind(IntEnum):
    """Events, in their order at one time."""

    STEP_END = 0
    HANDOVER = 1
    ARRIVAL = 2
    STEP_START = 3


@dataclass(slots=True)
class Turn:
    """One request of a session, when it was meant to be sent, and what came of it so far: when tokens came, and how
    many. `is_prefill`: all that its replica does is the prompt, for another to go on.
    """

    session: Session
    position: int
    intended_s: float
    request: Request | None = None
    is_prefill: bool = False
    sequence_id: SequenceId = UNKNOWN
    replica: int = 0
    num_cached: int | None = None
    times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def item(self) -> WorkItem:
        """The request."""
        return self.session[self.position]


@dataclass(slots=True)
class Ended:
    """A step that ends, and what it brought."""

    replica: Replica
    outputs: Sequence[SequenceOutput]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is sent. `concurrency`: a closed loop of so many sessions; None: open loop, by the items' arrival_s.
    `duration_s`: nothing is sent from then on; what was sent is answered.
    """

    items: Iterable[WorkItem]
    concurrency: int | None = None
    duration_s: float | None = None
    label: str = ""


class Fleet:
    """Runs traffic to its last answer. Holds only what is under way: records are handed out as requests end."""

    def __init__(
        self, replicas: Sequence[Replica], router: Router, requests: Requests, handoff: Handoff | None = None
    ) -> None:
        """`handoff`: the replicas only prefill, and others decode."""
        self._replicas = replicas
        self._router = router
        self._handoff = handoff
        self._requests = requests
        self._events: list[tuple[float, int, int, object]] = []
        self._numbers = count()
        self._turns: dict[RequestId, Turn] = {}
        self._sessions: Iterator[Session] = iter(())
        self._traffic = Traffic(())

    def run(self, traffic: Traffic) -> Iterator[RequestRecord]:
        """Every request as it ends, until none is left."""
        self._traffic, self._sessions = traffic, sessions(traffic.items)
        for _ in range(1 if traffic.concurrency is None else traffic.concurrency):
            self._next_session(0.0)
        while self._events:
            now_s, kind, _, subject = heappop(self._events)
            if kind == Kind.ARRIVAL:
                assert isinstance(subject, Turn)
                yield from self._arrive(subject, now_s)
            elif kind == Kind.HANDOVER:
                assert isinstance(subject, Turn)
                self._hand_over(subject, now_s)
            elif kind == Kind.STEP_START:
                assert isinstance(subject, Replica)
                outputs = subject.step(now_s)
                self._push(subject.clock.now_s, Kind.STEP_END, Ended(subject, outputs))
            else:
                assert isinstance(subject, Ended)
                yield from self._deliver(subject, now_s)

    def _push(self, time_s: float, kind: Kind, subject: object) -> None:
        heappush(self._events, (time_s, kind, next(self._numbers), subject))

    def _next_session(self, now_s: float) -> None:
        """The next session enters: at its own time, or now in a closed loop."""
        session = next(self._sessions, None)
        if session is None:
            return
        if self._traffic.concurrency is None:
            assert session[0].arrival_s is not None, "an open loop needs arrival times"
            now_s = session[0].arrival_s
        self._push_turn(session, 0, now_s)

    def _push_turn(self, session: Session, position: int, at_s: float) -> bool:
        """False when it would be sent too late."""
        if self._traffic.duration_s is not None and at_s >= self._traffic.duration_s:
            return False
        self._push(at_s, Kind.ARRIVAL, Turn(session, position, at_s))
        return True

    def _arrive(self, turn: Turn, now_s: float) -> Iterator[RequestRecord]:
        if self._traffic.concurrency is None and turn.position == 0:
            self._next_session(now_s)
        turn.request = request = self._requests.request(RequestId(turn.item.index), turn.item, now_s)
        turn.replica = self._router.choose(request, [replica.num_unanswered for replica in self._replicas])
        turn.is_prefill = self._handoff is not None and turn.item.output_tokens > 1
        replica, output_tokens = self._replicas[turn.replica], turn.item.output_tokens
        try:
            if self._handoff is not None:
                request, output_tokens = self._handoff.prefill_part(request), 1
            turn.sequence_id = replica.submit(request, output_tokens)
        except ContextLengthError as error:
            yield self._record(turn, now_s, error.message)
            self._go_on(turn, now_s)
            return
        self._wake(turn, replica, now_s)

    def _hand_over(self, turn: Turn, now_s: float) -> None:
        """The KV of the turn's prompt has arrived, with the first token: decoding can begin."""
        assert self._handoff is not None
        assert turn.request is not None
        turn.is_prefill = False
        turn.times_s.append(now_s)
        turn.tokens.append(1)
        replica, turn.sequence_id = self._handoff.submit(turn.request, turn.item.output_tokens)
        self._wake(turn, replica, now_s)

    def _wake(self, turn: Turn, replica: Replica, now_s: float) -> None:
        """A request has been submitted: its outputs are awaited, and the replica works."""
        self._turns[RequestId(turn.item.index)] = turn
        if not replica.is_at_work:
            replica.is_at_work = True
            self._push(now_s, Kind.STEP_START, replica)

    def _deliver(self, step: Ended, now_s: float) -> Iterator[RequestRecord]:
        replica = step.replica
        for output in step.outputs:
            turn = self._turns[output.request_id]
            if turn.is_prefill:
                self._pass_on(turn, output, now_s)
            else:
                turn.times_s.append(now_s)
                turn.tokens.append(len(output.tokens))
            if output.finish_reason is not None:
                del self._turns[output.request_id]
                replica.forget(turn.sequence_id)
                if not turn.is_prefill:
                    turn.num_cached = output.num_cached_tokens if turn.num_cached is None else turn.num_cached
                    yield self._record(turn, now_s)
                    self._go_on(turn, now_s)
        replica.is_at_work = replica.scheduler.has_work()
        if replica.is_at_work:
            self._push(now_s, Kind.STEP_START, replica)

    def _pass_on(self, turn: Turn, output: SequenceOutput, now_s: float) -> None:
        """A prompt is computed: its KV leaves for the decode pool."""
        assert self._handoff is not None
        assert turn.request is not None
        turn.num_cached = output.num_cached_tokens
        self._push(self._handoff.arrives_s(turn.replica, turn.request, now_s), Kind.HANDOVER, turn)

    def _go_on(self, turn: Turn, now_s: float) -> None:
        """The session's next turn, or, in a closed loop, the next session."""
        position = turn.position + 1
        is_over = position == len(turn.session)
        if not is_over:
            is_over = not self._push_turn(turn.session, position, now_s + turn.session[position].think_s)
        if is_over and self._traffic.concurrency is not None:
            self._next_session(now_s)

    def _record(self, turn: Turn, now_s: float, error: str | None = None) -> RequestRecord:
        item = turn.item
        return RequestRecord(
            index=item.index,
            intended_s=turn.intended_s,
            sent_s=turn.intended_s,
            ended_s=now_s,
            outcome=Outcome.COMPLETED if error is None else Outcome.FAILED,
            prompt_tokens=item.prompt_tokens,
            output_tokens=sum(turn.tokens),
            token_count=TokenCount.USAGE,
            event_times_s=tuple(turn.times_s),
            event_tokens=tuple(turn.tokens),
            read_sizes=(1,) * len(turn.tokens),
            cached_tokens=turn.num_cached,
            status=None if error is None else BAD_REQUEST,
            error=error,
            label=self._traffic.label,
        )
