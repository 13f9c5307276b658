"""The scheduler: decides what each step computes, and records what came of it. Only writer of queues and sequences.

It never looks at a clock, a tensor or a text, and decides nothing by the time it is told. `schedule` decides, `update`
records; between them an executor runs the plan. One step, in this order:

  1. rows that decode are paid, the longest unserved first if the budget can't hold all they owe;
  2. unless that preempted somebody, waiting sequences are admitted while their blocks and the growth reserve fit;
  3. the rest of the budget goes to prefill chunks in `order`, by default `policy.service_key`.

A budget that no step can exhaust is whole-prompt prefill: chunks are then as long as prompts.

Admission comes before chunks (it costs no tokens), so a short prompt is not kept out by a long one being computed.
When blocks run out, `policy.choose_victim` gives its blocks back and waits again at its original arrival.

Invariants: a sequence is waiting, following, running or finished, exactly once; running ones have a row and a lease;
`budget` is never exceeded; the first of `running` (the oldest admitted) is never preempted.
"""

from dataclasses import dataclass, field
from heapq import heappop, heappush

from paceline.core.kv import KvManager, Match
from paceline.core.output import SequenceOutput
from paceline.core.plan import BlockCopy, NewRow, RowResult, RowStep, StepPlan, StepResult, TokenLogprobs
from paceline.core.policy import ChunkOrder, Forecast, Reserve, choose_victim, service_key
from paceline.core.prefixes import PendingPrefixes
from paceline.core.queue import WaitingQueue
from paceline.core.request import FinishReason, Request, RequestId, SequenceId, token_array
from paceline.core.sequence import Sequence, State
from paceline.core.tally import Tally
from paceline.errors import ContextLengthError


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """Rows that may run at once, tokens a step may compute, and the model's context."""

    max_num_seqs: int
    max_step_tokens: int
    max_context: int


@dataclass(slots=True)
class Draft:
    """A plan being written: what the step may still compute, and what is decided."""

    budget: int
    now_s: float
    rows: dict[SequenceId, RowStep] = field(default_factory=dict)
    new_rows: dict[SequenceId, NewRow] = field(default_factory=dict)
    copies: list[BlockCopy] = field(default_factory=list)
    has_preempted: bool = False


class Scheduler:
    """Continuous batching with chunked prefill, prefix sharing and preemption over one KV manager."""

    def __init__(
        self, limits: SchedulerLimits, kv: KvManager, reserve: Reserve, order: ChunkOrder = service_key
    ) -> None:
        self.limits = limits
        self.kv = kv
        self.num_preemptions = 0
        self.tally = Tally()
        self.step_index = 0
        self._reserve = reserve
        self._order = order
        self._waiting = WaitingQueue()
        self._following: dict[SequenceId, Sequence] = {}
        self._running: dict[SequenceId, Sequence] = {}
        self._requests: dict[RequestId, list[Sequence]] = {}
        self._pending = PendingPrefixes(kv.block_size)
        self._rows: list[Sequence | None] = [None] * limits.max_num_seqs
        self._free_rows = list(range(limits.max_num_seqs))
        self._freed_rows: list[int] = []
        self._num_sequences = 0
        self._refused: SequenceId | None = None

    @property
    def effective_context(self) -> int:
        """min(model length, tokens of the empty pool): the most prompt + max_tokens a request may ask for."""
        return min(self.limits.max_context, self.kv.pool_tokens)

    @property
    def num_waiting(self) -> int:
        """Sequences not running: queued, or following a leader."""
        return len(self._waiting) + len(self._following)

    @property
    def num_following(self) -> int:
        """Waiting sequences that follow a leader."""
        return len(self._following)

    @property
    def num_running(self) -> int:
        """Sequences with a row."""
        return len(self._running)

    @property
    def running(self) -> list[Sequence]:
        """Running sequences, the oldest admitted first."""
        return list(self._running.values())

    @property
    def requests(self) -> dict[RequestId, list[Sequence]]:
        """Live sequences of each request. Read only."""
        return self._requests

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running) or len(self._waiting) > 0

    def submit(self, request: Request) -> None:
        """Queue a request's sequences. Raises ContextLengthError if even the empty pool could not hold one."""
        self.check_feasible(request)
        assert request.request_id not in self._requests, "a request id is used twice"
        sequences = self._requests[request.request_id] = []
        for choice_index in range(request.num_sequences):
            self._num_sequences += 1
            sequence = Sequence(
                SequenceId(self._num_sequences),
                request,
                choice_index,
                request.sampling.for_choice(choice_index),
                token_array(request.prompt),
            )
            sequences.append(sequence)
            self._waiting.push(sequence)

    def check_feasible(self, request: Request) -> None:
        """Raises ContextLengthError if even the empty pool could not hold one of the request's sequences."""
        num_prompt, max_tokens = len(request.prompt), request.stop.max_tokens
        if num_prompt + max_tokens > self.effective_context:
            raise ContextLengthError(
                f"the prompt has {num_prompt} tokens and max_tokens is {max_tokens}, "
                f"{num_prompt + max_tokens} together; the effective context is {self.effective_context} tokens "
                f"(model {self.limits.max_context}, KV pool {self.kv.pool_tokens}): "
                "shorten the prompt or lower max_tokens",
                "max_tokens" if num_prompt < self.effective_context else "prompt",
            )

    def cancel(self, request_id: RequestId) -> list[SequenceOutput]:
        """End what is left of a request, wherever it is; unknown or finished ones are no error. Returns the endings."""
        outputs = []
        for sequence in list(self._requests.get(request_id, ())):
            self._retire(sequence, FinishReason.CANCELLED)
            outputs.append(_ending(sequence))
        return outputs

    def finish(self, request_id: RequestId, choice_index: int) -> None:
        """The text side saw a stop string: the choice has ended, whatever was sampled since is dropped. No output
        comes of it.
        """
        for sequence in list(self._requests.get(request_id, ())):
            if sequence.choice_index == choice_index:
                self._reserve.observe(sequence.num_output)
                self._retire(sequence, FinishReason.STOP)

    def schedule(self, now_s: float = 0.0) -> StepPlan | None:
        """Decide the next step; None when there is nothing to do. `now_s` is when those it admits were admitted."""
        if not self.has_work():
            return None
        self.step_index += 1
        draft = Draft(self.limits.max_step_tokens, now_s)
        decodes = [sequence for sequence in self._running.values() if sequence.is_decoding]
        if sum(sequence.debt for sequence in decodes) > draft.budget:
            decodes.sort(key=lambda sequence: sequence.last_served_step)
        self._pay(decodes, draft)
        if not draft.has_preempted:
            self._admit(draft)
        chunks = [sequence for sequence in self._running.values() if sequence.sequence_id not in draft.rows]
        chunks.sort(key=lambda sequence: self._order(sequence, self.step_index))
        self._pay(chunks, draft)
        return self._seal(draft)

    def update(self, plan: StepPlan, result: StepResult) -> list[SequenceOutput]:
        """Record a step: computed tokens, sampled tokens, endings. Rows whose sequence left meanwhile are ignored."""
        assert len(plan.rows) == len(result.rows), "a result must answer every row of its plan"
        outputs = []
        for step, row_result in zip(plan.rows, result.rows, strict=True):
            assert step.row == row_result.row, "results must keep the plan's order"
            sequence = self._rows[step.row]
            if sequence is not None and sequence.num_computed == step.start:
                output = self._record(sequence, step, row_result)
                if output is not None:
                    outputs.append(output)
        return outputs

    def _pay(self, sequences: list[Sequence], draft: Draft) -> None:
        """Give each sequence in turn as much of its debt as the budget holds, preempting when blocks run out."""
        for sequence in sequences:
            if draft.budget == 0:
                return
            if sequence.state is not State.RUNNING or sequence.lease is None:
                continue
            num_tokens = min(sequence.debt, draft.budget)
            end = sequence.num_computed + num_tokens
            blocks = self.kv.grow(sequence.lease, end)
            while blocks is None and sequence.state is State.RUNNING:
                self._preempt_for(sequence, draft)
                blocks = self.kv.grow(sequence.lease, end) if sequence.lease else None
            if blocks is None or sequence.row is None:
                continue
            samples = end == len(sequence.tokens) and sequence.request.stop.max_tokens > 0
            scores = sequence.sampling.num_prompt_logprobs is not None and sequence.num_scored < sequence.num_prompt
            draft.rows[sequence.sequence_id] = RowStep(
                sequence.row,
                sequence.num_computed,
                num_tokens,
                blocks,
                samples,
                sequence.num_scored if scores else None,
            )
            draft.budget -= num_tokens
            sequence.last_served_step = self.step_index

    def _preempt_for(self, needy: Sequence, draft: Draft) -> None:
        victim = choose_victim(self._running.values(), self.kv)
        assert victim is not None, f"sequence {needy.sequence_id} can't finish alone but was found feasible"
        undone = draft.rows.pop(victim.sequence_id, None)
        draft.budget += undone.num_tokens if undone else 0
        assert victim.sequence_id not in draft.new_rows, "a step that admitted must not preempt"
        draft.has_preempted = True
        self.num_preemptions += 1
        victim.num_preemptions += 1
        self._leave_row(victim)
        victim.state, victim.num_lost, victim.num_computed = State.WAITING, victim.num_computed, 0
        self._waiting.push(victim)

    def _admit(self, draft: Draft) -> None:
        """Let waiting sequences in, first in line first, until one does not fit. That one is not asked again before a
        running sequence has left: until then rows only grow.
        """
        first = self._waiting.peek()
        if not self._free_rows or draft.budget == 0 or first is None or first.sequence_id == self._refused:
            return
        forecast, available = self._outlook()
        while self._free_rows and (sequence := self._waiting.peek()) is not None:
            match = self.kv.match(sequence.request.namespace, sequence.tokens, sequence.match_limit)
            num_matched = len(match.path) * self.kv.block_size
            leader = self._pending.find(sequence, num_matched)
            if leader is not None:
                self._follow(sequence, *leader)
                continue
            available -= self.kv.cost(match, len(sequence.tokens))
            forecast.add(sequence, len(sequence.tokens) - num_matched)
            if self._running and available < forecast.peak_blocks():
                self._refused = sequence.sequence_id
                return
            self._start(sequence, match, draft)

    def _outlook(self) -> tuple[Forecast, int]:
        """How running sequences will grow, and the blocks that no known token needs."""
        forecast, available = self._reserve.forecast(), self.kv.pool.num_available
        for sequence in self._running.values():
            assert sequence.lease is not None
            num_known, num_shared = len(sequence.tokens), sequence.num_cached or 0
            available -= self.kv.blocks_for(num_known) - len(sequence.lease.blocks)
            forecast.add(sequence, num_known - num_shared)
        return forecast, available

    def _follow(self, sequence: Sequence, leader: Sequence, num_tokens: int) -> None:
        self._waiting.remove(sequence)
        sequence.state = State.FOLLOWING
        self._following[sequence.sequence_id] = sequence
        leader.followers.append((num_tokens, sequence))

    def _start(self, sequence: Sequence, match: Match, draft: Draft) -> None:
        self._waiting.remove(sequence)
        opening = self.kv.open(match)
        sequence.lease, sequence.num_computed = opening.lease, opening.num_cached_tokens
        sequence.num_admitted = len(sequence.tokens)
        self.tally.admit(sequence, opening.num_cached_tokens)
        if sequence.num_cached is None:
            sequence.num_cached, sequence.admitted_s = opening.num_cached_tokens, draft.now_s
        row = heappop(self._free_rows)
        sequence.row, sequence.state = row, State.RUNNING
        sequence.last_served_step = self.step_index
        self._rows[row] = sequence
        self._running[sequence.sequence_id] = sequence
        self._pending.lead(sequence)
        draft.copies.extend(opening.copies)
        draft.new_rows[sequence.sequence_id] = NewRow(
            row,
            sequence.sequence_id,
            token_array(sequence.tokens),
            sequence.num_prompt,
            sequence.sampling,
            tuple(opening.lease.blocks),
            sequence.request.pooling,
        )

    def _seal(self, draft: Draft) -> StepPlan:
        freed, self._freed_rows = tuple(self._freed_rows), []
        self.tally.step_tokens.observe(self.limits.max_step_tokens - draft.budget)
        return StepPlan(
            self.step_index,
            freed,
            tuple(draft.new_rows.values()),
            tuple(draft.copies),
            tuple(draft.rows.values()),
        )

    def _record(self, sequence: Sequence, step: RowStep, result: RowResult) -> SequenceOutput | None:
        assert sequence.lease is not None, "a running sequence has no lease"
        sequence.num_computed = step.start + step.num_tokens
        self.kv.commit(sequence.lease, sequence.tokens, sequence.num_computed)
        if sequence.is_leading:
            still_leads = sequence.debt > 0 and sequence.lease.is_attached
            self._wake(self._pending.release(sequence, sequence.num_computed if still_leads else None))
        sequence.num_scored += len(result.prompt_scores)
        tokens, reason = _take_tokens(sequence, result)
        self.tally.num_generated_tokens += len(tokens)
        if reason is not None:
            self._reserve.observe(sequence.num_output)
            self._retire(sequence, reason)
        if not tokens and not result.prompt_scores and reason is None:
            return None
        return SequenceOutput(
            sequence.request.request_id,
            sequence.choice_index,
            tokens,
            result.prompt_scores,
            reason,
            sequence.num_cached or 0,
            sequence.admitted_s,
            result.pooled,
        )

    def _retire(self, sequence: Sequence, reason: FinishReason) -> None:
        """The one way out: from any state, exactly once."""
        assert sequence.finish_reason is None, "a sequence ends twice"
        if sequence.state is State.RUNNING:
            self._leave_row(sequence)
        elif sequence.state is State.FOLLOWING:
            del self._following[sequence.sequence_id]
        else:
            self._waiting.remove(sequence)
        sequence.state, sequence.finish_reason = State.FINISHED, reason
        siblings = self._requests[sequence.request.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._requests[sequence.request.request_id]

    def _leave_row(self, sequence: Sequence) -> None:
        assert sequence.row is not None
        assert sequence.lease is not None
        self._refused = None
        self.kv.close(sequence.lease, sequence.tokens, sequence.num_computed)
        del self._running[sequence.sequence_id]
        self._rows[sequence.row] = None
        heappush(self._free_rows, sequence.row)
        self._freed_rows.append(sequence.row)
        sequence.row, sequence.lease = None, None
        self._wake(self._pending.release(sequence, None))

    def _wake(self, followers: list[Sequence]) -> None:
        for follower in followers:
            if follower.state is State.FOLLOWING:
                del self._following[follower.sequence_id]
                follower.state = State.WAITING
                self._waiting.push(follower)


def _take_tokens(sequence: Sequence, result: RowResult) -> tuple[tuple[TokenLogprobs, ...], FinishReason | None]:
    """Append the step's new tokens up to the one that ends the sequence; those kept, and how it ended if it did."""
    if not result.sampled and sequence.debt == 0:  # without output only when none is allowed
        return (), result.end or sequence.stop_reason()
    reason = None
    for count, token in enumerate(result.sampled, 1):
        sequence.tokens.append(token.token_id)
        reason = sequence.stop_reason()
        if reason is not None and count < len(result.sampled):
            return result.sampled[:count], reason
    return result.sampled, result.end or reason


def _ending(sequence: Sequence) -> SequenceOutput:
    return SequenceOutput(
        sequence.request.request_id, sequence.choice_index, (), (), sequence.finish_reason, sequence.num_cached or 0
    )
