"""A small world for the core: one scheduler, one pool and a scripted model, with every promise checked at every turn.

Property tests, the fuzzer and the planted faults all drive this one object. It counts what happened (`events`), so a
run can prove that it reached the rare places, and keeps a journal of inputs, so a run can be replayed.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from core_oracles import (
    VOCABULARY,
    PlainRun,
    PrefixOracle,
    TokenScore,
    check_scheduler,
    live_sequences,
    next_token,
    num_forced,
    plain_run,
)

from paceline.core.kv import KvManager
from paceline.core.output import SequenceOutput
from paceline.core.plan import NewRow, RowStep, StepPlan, TokenLogprobs
from paceline.core.policy import Forecast, LearnedReserve, Reserve
from paceline.core.request import (
    FinishReason,
    Pooling,
    Request,
    RequestId,
    SamplingParams,
    SequenceId,
    StopRule,
    token_array,
)
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.core.sequence import Sequence, State
from paceline.errors import ContextLengthError
from paceline.exec.scripted import ScriptedExecutor

ChoiceKey = tuple[RequestId, int]


@dataclass(frozen=True)
class WorldConfig:
    """Sizes of a world. `reserves` False admits whatever fits now, which makes preemption common; `forces` False brings
    one token a step.
    """

    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_step_tokens: int
    max_context: int = 1 << 16
    reserves: bool = True
    forces: bool = True


@dataclass(frozen=True)
class Ask:
    """A request in few small numbers: `num_shared` tokens of stem `stem`, then `tail`."""

    stem: int = 0
    num_shared: int = 4
    tail: tuple[int, ...] = ()
    max_tokens: int = 4
    num_sequences: int = 1
    priority: int = 0
    namespace: int = 0
    is_scored: bool = False
    stop_token: int | None = None
    min_tokens: int = 0
    seed: int = 0
    pooling: Pooling | None = None

    def request(self, request_id: int, arrival_s: float) -> Request:
        prompt = [stem_token(self.stem, index) for index in range(self.num_shared)] + list(self.tail)
        stops = frozenset(() if self.stop_token is None else (self.stop_token,))
        return Request(
            RequestId(request_id),
            token_array(prompt or [0]),
            StopRule(0 if self.pooling else self.max_tokens, self.min_tokens, stops),
            SamplingParams(seed=self.seed, num_prompt_logprobs=0 if self.is_scored else None),
            1 if self.pooling else self.num_sequences,
            arrival_s,
            self.priority,
            b"namespace %d" % self.namespace,
            self.pooling,
        )


def stem_token(stem: int, index: int) -> int:
    """Token `index` of an endless text; stems agree for three tokens, then part."""
    return (index * index + index // 3 + (stem if index > 2 else 0)) % VOCABULARY


class NoReserve:
    """A reserve that leaves no room for growth: admission then looks at known tokens only."""

    def observe(self, num_output: int) -> None:
        pass

    def forecast(self) -> Forecast:
        return NoForecast()


class NoForecast:
    def add(self, sequence: Sequence, num_held: int) -> None:
        pass

    def peak_blocks(self) -> float:
        return 0.0


def make_scheduler(config: WorldConfig) -> Scheduler:
    limits = SchedulerLimits(config.max_num_seqs, config.max_step_tokens, config.max_context)
    reserve: Reserve = LearnedReserve(config.block_size) if config.reserves else NoReserve()
    return Scheduler(limits, KvManager(config.num_blocks, config.block_size), reserve)


class World:
    """Calls go in as an engine would make them; an AssertionError says which promise was broken."""

    def __init__(self, config: WorldConfig) -> None:
        self.config = config
        self.scheduler = make_scheduler(config)
        self.executor = ScriptedExecutor(config.block_size, next_token, num_forced if config.forces else None)
        self.events: Counter[str] = Counter()
        self.journal: list[tuple[str, Any]] = []
        self.plan: StepPlan | None = None
        self.expected: dict[ChoiceKey, PlainRun] = {}
        self.tokens: dict[ChoiceKey, list[TokenScore]] = {}
        self.scores: dict[ChoiceKey, list[TokenScore]] = {}
        self.endings: dict[ChoiceKey, FinishReason] = {}
        self._prefixes = PrefixOracle()
        self._planned: list[tuple[Sequence, RowStep]] = []
        self._sequences: list[Sequence] = []
        self._num_admitted: dict[SequenceId, int] = {}
        self._num_requests = 0
        self._was_full = False

    def submit(self, ask: Ask) -> RequestId | None:
        """The request's id, or None if it was refused, as it must be exactly when it can't fit."""
        self._num_requests += 1
        request = ask.request(self._num_requests, float(self._num_requests // 3))
        room = min(self.config.max_context, self.config.num_blocks * self.config.block_size)
        fits = len(request.prompt) + request.stop.max_tokens <= room
        self.journal.append(("submit", request))
        if not fits:
            with pytest.raises(ContextLengthError, match=str(room)):
                self.scheduler.submit(request)
            self.events["refuse"] += 1
            return None
        self.scheduler.submit(request)
        self._sequences += self.scheduler.requests[request.request_id]
        self.events["fork"] += request.num_sequences > 1
        for choice_index in range(request.num_sequences):
            key = request.request_id, choice_index
            self.expected[key] = plain_run(request, choice_index)
            self.tokens[key], self.scores[key] = [], []
        return request.request_id

    def cancel(self, request_id: RequestId) -> None:
        """Every choice still open ends as cancelled, and says so once."""
        victims = list(self.scheduler.requests.get(request_id, ()))
        for sequence in victims:
            self.events[f"cancel {situation(sequence)}"] += 1
            self._note_closed(sequence, sequence.num_computed)
        self.events["cancel with a plan outstanding"] += bool(victims) and self.plan is not None
        self.journal.append(("cancel", request_id))
        outputs = self.scheduler.cancel(request_id)
        assert [output.choice_index for output in outputs] == [sequence.choice_index for sequence in victims]
        for output in outputs:
            assert output.finish_reason is FinishReason.CANCELLED, "a cancelled sequence ends otherwise"
            self._end((output.request_id, output.choice_index), FinishReason.CANCELLED)

    def finish(self, request_id: RequestId, choice_index: int) -> None:
        """A stop string ended the choice; no output comes of it."""
        for sequence in self.scheduler.requests.get(request_id, ()):
            if sequence.choice_index == choice_index:
                self.events["finish"] += 1
                self._note_closed(sequence, sequence.num_computed)
                self._end((request_id, choice_index), FinishReason.STOP)
        self.journal.append(("finish", (request_id, choice_index)))
        self.scheduler.finish(request_id, choice_index)

    def step(self) -> None:
        """A whole step; completes the outstanding plan if there is one."""
        if self.plan is None:
            self.schedule()
        self.complete()

    def schedule(self) -> None:
        """Decide a step and check the decision."""
        assert self.plan is None, "the world keeps one plan outstanding"
        before = {sequence: sequence.num_computed for sequence in self.scheduler.running}
        num_evictions = self.scheduler.kv.num_evictions
        plan = self.scheduler.schedule()
        self.journal.append(("schedule", plan))
        self.events["evict"] += self.scheduler.kv.num_evictions - num_evictions
        if plan is None:
            assert not self.scheduler.requests, "sequences are left but there is nothing to do"
            return
        self.plan = plan
        rows = self.scheduler._rows
        self._planned = [(sequence, step) for step in plan.rows if (sequence := rows[step.row]) is not None]
        self._num_admitted.update({new.sequence_id: len(new.tokens) for new in plan.new_rows})
        self._check_rows(plan)
        self._check_preemptions(plan, before)
        for new in plan.new_rows:
            self._check_new_row(new, plan)

    def complete(self) -> None:
        """Run the outstanding plan and take in what it gave."""
        plan, self.plan = self.plan, None
        if plan is None:
            return
        contents = [(sequence, sequence.tokens.tobytes(), step) for sequence, step in self._planned]
        result = self.executor.execute(plan)
        self.journal.append(("update", result))
        outputs = self.scheduler.update(plan, result)
        self.events["several tokens at once"] += any(len(output.tokens) > 1 for output in outputs)
        num_kept = sum(len(output.tokens) for output in outputs)
        self.events["tokens past an end"] += sum(len(row.sampled) for row in result.rows) > num_kept
        for sequence, tokens, step in contents:
            namespace, end = sequence.request.namespace, step.start + step.num_tokens
            self._prefixes.note_computed(namespace, tokens, step.start, end)
            if sequence.lease is not None:
                self._prefixes.note_shareable(namespace, tokens, sequence.lease.num_published * self.config.block_size)
            elif sequence.num_computed == end:
                self._prefixes.note_shareable(namespace, tokens, end)
        for output in outputs:
            self._take(output)

    def check(self) -> None:
        """Everything that holds between any two calls."""
        check_scheduler(self.scheduler)
        is_full = self.scheduler.kv.pool.num_available == 0
        self.events["pool exactly full"] += is_full and not self._was_full
        self._was_full = is_full
        num_open = sum(len(siblings) for siblings in self.scheduler.requests.values())
        assert len(self.endings) + num_open == len(self.expected), "an ending is missing or came twice"

    def drain(self) -> int:
        """Step until nothing is left, within the bound of progress; the number of steps it took."""
        live, num_steps = live_sequences(self.scheduler), 0
        bound = drain_bound(live)
        while self.scheduler.has_work() or self.plan is not None:
            self.step()
            self.check()
            num_steps += 1
            assert num_steps <= bound, f"{len(live)} sequences are not through after {num_steps} steps"
        assert len(self.endings) == len(self.expected), "a sequence never ended"
        assert self.scheduler.kv.pool.num_in_use == 0, "blocks are held by nobody"
        assert not self.scheduler._pending._leaders, "a leader is left over"
        self._check_work_done()
        self._check_tally()
        return num_steps

    def _check_work_done(self) -> None:
        """Nothing is computed but what each choice needed beyond its first cache hit, and what preemption repeated."""
        if {FinishReason.CANCELLED, FinishReason.ERROR} & set(self.endings.values()) or self.events["finish"]:
            return
        needed = sum(sequence.num_computed - (sequence.num_cached or 0) for sequence in self._sequences)
        tally = self.scheduler.tally
        num_computed, num_repeated = self.executor.num_computed_tokens, tally.num_recomputed_tokens
        needed -= tally.num_spared_tokens
        assert num_computed == needed + num_repeated, f"{num_computed} computed, {needed} needed, {num_repeated} again"

    def _check_tally(self) -> None:
        """What the scheduler counted is what its sequences tell, resumed ones once like all others."""
        tally = self.scheduler.tally
        admitted = [sequence for sequence in self._sequences if sequence.num_cached is not None]
        assert tally.num_prompt_tokens == sum(sequence.num_prompt for sequence in admitted)
        assert tally.num_cached_tokens == sum(sequence.num_cached or 0 for sequence in admitted)
        assert tally.num_cached_tokens <= tally.num_queried_tokens <= tally.num_prompt_tokens
        assert tally.num_generated_tokens == sum(sequence.num_output for sequence in self._sequences)
        assert tally.step_tokens.state().total == self.executor.num_computed_tokens
        assert sum(tally.step_tokens.state().counts) == self.scheduler.step_index

    def _check_rows(self, plan: StepPlan) -> None:
        assert 1 <= plan.num_tokens <= self.config.max_step_tokens, f"{plan.num_tokens} tokens break the budget"
        assert len({step.row for step in plan.rows}) == len(plan.rows) == len(self._planned), "a row is planned twice"
        for sequence, step in self._planned:
            end = step.start + step.num_tokens
            assert step.num_tokens >= 1, "a row computes nothing"
            assert step.start == sequence.num_computed, "a row starts where its debt does not"
            assert end <= len(sequence.tokens), "a row computes tokens nobody knows"
            wants_token = end == len(sequence.tokens) and sequence.num_remaining > 0
            assert step.samples == wants_token, "a row samples before its end, or not at it"
        decodes = [
            sequence.debt == 1 or step.start >= self._num_admitted[sequence.sequence_id]
            for sequence, step in self._planned
        ]
        assert decodes == sorted(decodes, reverse=True), "a decode comes after a chunk"

    def _check_preemptions(self, plan: StepPlan, before: dict[Sequence, int]) -> None:
        preempted = [sequence for sequence in before if sequence.state is not State.RUNNING]
        self.events["preempt"] += len(preempted)
        assert next(iter(before), None) not in preempted, "the oldest admitted is preempted"
        assert not (preempted and plan.new_rows), "a step that preempted admits"
        for sequence in preempted:
            self._note_closed(sequence, before[sequence])
            self.events["preempt a prefill"] += sequence.num_output == 0

    def _check_new_row(self, new: NewRow, plan: StepPlan) -> None:
        sequence = self.scheduler._rows[new.row]
        assert sequence is not None, "a row is new and empty"
        assert sequence.sequence_id == new.sequence_id, "a new row has another's sequence"
        assert new.tokens == sequence.tokens, "a new row does not know its tokens"
        assert new.num_prompt_tokens == sequence.num_prompt, "a new row miscounts its prompt"
        namespace, tokens = sequence.request.namespace, sequence.tokens.tobytes()
        cached, limit = sequence.num_computed, sequence.match_limit
        most = self._prefixes.longest_computed(namespace, tokens, limit)
        assert cached <= most, f"{cached} tokens are called cached, {most} were ever computed"
        if self.scheduler.kv.num_evictions == 0 and self.scheduler.kv.pool.num_available > 0:
            least = self._prefixes.longest_shareable(namespace, tokens, limit)
            assert cached >= least, f"{cached} tokens are found in the cache, {least} are there"
        self.events["partial copy"] += any(new.blocks and copy.target == new.blocks[-1] for copy in plan.copies)
        self.events["prefix hit"] += cached > 0
        self.events["resume"] += sequence.num_preemptions > 0
        self.events["resume a mean"] += sequence.num_preemptions > 0 and sequence.request.pooling is Pooling.MEAN
        self.events["resume while scoring"] += sequence.num_preemptions > 0 and 1 < sequence.num_scored <= limit

    def _note_closed(self, sequence: Sequence, num_computed: int) -> None:
        self._prefixes.note_shareable(sequence.request.namespace, sequence.tokens.tobytes(), num_computed)

    def _take(self, output: SequenceOutput) -> None:
        key = output.request_id, output.choice_index
        assert key not in self.endings, f"{key} speaks after its end"
        plain = self.expected[key]
        _extend(self.tokens[key], output.tokens, plain.tokens, f"tokens of {key}")
        _extend(self.scores[key], output.prompt_scores, plain.scores, f"prompt scores of {key}")
        pooled = None if output.finish_reason is None else plain.pooled
        assert output.pooled == pooled, f"{key} gives the pooled state {output.pooled!r}, alone {pooled!r}"
        if output.finish_reason is not None:
            assert output.finish_reason is plain.reason, (
                f"{key} ends by {output.finish_reason}, alone by {plain.reason}"
            )
            assert len(self.tokens[key]) == len(plain.tokens), f"{key} ends with tokens missing"
            assert len(self.scores[key]) == len(plain.scores), f"{key} ends with prompt scores missing"
            self._end(key, output.finish_reason)

    def _end(self, key: ChoiceKey, reason: FinishReason) -> None:
        assert key not in self.endings, f"{key} ends twice"
        self.endings[key] = reason


def drain_bound(live: list[Sequence]) -> int:
    """Steps within which all of `live` must end: a step computes at least one token, and what preemption repeats is
    outweighed by the steps that pay many at once. (Not a theorem for every pool, but no world has come near it.)
    """
    return sum(sequence.num_prompt + sequence.request.stop.max_tokens for sequence in live) + len(live) + 1


def _extend(got: list[TokenScore], news: tuple[TokenLogprobs, ...], plain: tuple[TokenScore, ...], what: str) -> None:
    got.extend((token.token_id, token.logprob) for token in news)
    start = len(got) - len(news)
    assert tuple(got[start:]) == plain[start : len(got)], f"{what} from {start} differ from the plain run"


def situation(sequence: Sequence) -> str:
    """Where a sequence is, told apart as finely as a cancellation meets it."""
    if sequence.state is State.RUNNING:
        return "decoding" if sequence.num_output > 0 and sequence.debt == 1 else "prefilling"
    if sequence.state is State.WAITING and sequence.num_preemptions > 0:
        return "preempted"
    return sequence.state.name.lower()
