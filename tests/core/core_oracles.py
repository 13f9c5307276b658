"""What the core must agree with, written the slow and obvious way: the plain run of a request, the prefixes that have
been computed, and the scheduler's bookkeeping. These look inside the scheduler; nothing else may.
"""

from array import array
from dataclasses import dataclass
from functools import lru_cache

from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.policy import LearnedReserve
from paceline.core.request import FinishReason, Pooling, Request, RequestId, SamplingParams, StopRule
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.core.sequence import Sequence, State
from paceline.exec.scripted import ScriptedExecutor

VOCABULARY = 3
PLAIN_CONTEXT = 1 << 16

TokenScore = tuple[int, float]


def next_token(tokens: "array[int]", sampling: SamplingParams) -> int:
    """A tiny model: depends on the last two tokens, the position and the seed."""
    before = tokens[-2] if len(tokens) > 1 else 0
    mixed = (sampling.seed * 31 + len(tokens) * 7 + tokens[-1] * 5 + before * 3 + 1) * 2_654_435_761
    return (mixed >> 13) % VOCABULARY


def num_forced(tokens: "array[int]", sampling: SamplingParams) -> int:
    """How many tokens come along with the next one: mostly none. Plain runs get them one by one."""
    mixed = (sampling.seed + len(tokens) * 11 + tokens[-1] * 3 + 5) * 2_654_435_761
    return max(0, (mixed >> 15) % 9 - 5)


@dataclass(frozen=True)
class PlainRun:
    """What a request gives when it is alone: sampled tokens and prompt scores with their logprobs, its ending, and its
    pooled state.
    """

    tokens: tuple[TokenScore, ...]
    scores: tuple[TokenScore, ...]
    reason: FinishReason
    pooled: bytes | None


def plain_run(request: Request, choice_index: int) -> PlainRun:
    """The choice alone on a fresh scheduler: one sequence, one chunk, nothing cached, room for everything."""
    sampling = request.sampling.for_choice(choice_index)
    return _plain_run(request.prompt.tobytes(), request.stop, sampling, request.pooling)


@lru_cache(maxsize=20_000)
def _plain_run(prompt: bytes, stop: StopRule, sampling: SamplingParams, pooling: Pooling | None) -> PlainRun:
    tokens = array("i")
    tokens.frombytes(prompt)
    num_blocks = (len(tokens) + stop.max_tokens) // 16 + 1
    limits = SchedulerLimits(max_num_seqs=1, max_step_tokens=PLAIN_CONTEXT, max_context=PLAIN_CONTEXT)
    scheduler = Scheduler(limits, KvManager(num_blocks, 16), LearnedReserve(16))
    loop = StepLoop(scheduler, ScriptedExecutor(16, next_token))
    scheduler.submit(Request(RequestId(1), tokens, stop, sampling, pooling=pooling))
    outputs = [output for _ in range(stop.max_tokens + 1) for output in loop.step()]
    reason = outputs[-1].finish_reason
    assert reason is not None, "a plain run did not end"
    return PlainRun(
        tuple((token.token_id, token.logprob) for output in outputs for token in output.tokens),
        tuple((score.token_id, score.logprob) for output in outputs for score in output.prompt_scores),
        reason,
        outputs[-1].pooled,
    )


class PrefixOracle:
    """Every prefix ever computed, and every prefix that has been made shareable, by namespace; nothing is forgotten."""

    def __init__(self) -> None:
        self._computed: dict[bytes, set[bytes]] = {}
        self._shareable: dict[bytes, set[bytes]] = {}

    def note_computed(self, namespace: bytes, tokens: bytes, start: int, end: int) -> None:
        """Positions [start, end) were computed."""
        _add_prefixes(self._computed.setdefault(namespace, set()), tokens, start, end)

    def note_shareable(self, namespace: bytes, tokens: bytes, end: int) -> None:
        """The first `end` tokens are in published blocks, or their sequence has let go."""
        _add_prefixes(self._shareable.setdefault(namespace, set()), tokens, 0, end)

    def longest_computed(self, namespace: bytes, tokens: bytes, limit: int) -> int:
        """The most a prefix cache could know of the first `limit` tokens."""
        return _longest(self._computed.get(namespace, set()), tokens, limit)

    def longest_shareable(self, namespace: bytes, tokens: bytes, limit: int) -> int:
        """What a prefix cache that never evicted must know of the first `limit` tokens."""
        return _longest(self._shareable.get(namespace, set()), tokens, limit)


def _add_prefixes(known: set[bytes], tokens: bytes, start: int, end: int) -> None:
    for length in range(end, start, -1):
        known.add(tokens[: 4 * length])


def _longest(known: set[bytes], tokens: bytes, limit: int) -> int:
    length = 0
    while length < limit and tokens[: 4 * (length + 1)] in known:
        length += 1
    return length


def live_sequences(scheduler: Scheduler) -> list[Sequence]:
    """Every sequence that has not ended."""
    return [sequence for siblings in scheduler.requests.values() for sequence in siblings]


def check_scheduler(scheduler: Scheduler) -> None:
    """Assert the scheduler's invariants, then the KV manager's."""
    live = live_sequences(scheduler)
    running = scheduler.running
    for sequence in live:
        _check_sequence(scheduler, sequence)
    assert len(live) == scheduler.num_running + scheduler.num_waiting, "a sequence is in no state, or in two"
    used = [row for row, sequence in enumerate(scheduler._rows) if sequence is not None]
    assert sorted(used + scheduler._free_rows) == list(range(scheduler.limits.max_num_seqs)), "a row is lost"
    assert all(scheduler._rows[sequence.row or 0] is sequence for sequence in running), "a row has another's sequence"
    assert all(scheduler.requests.values()), "a request without sequences is kept"
    leading = {leader.sequence_id for group in scheduler._pending._leaders.values() for leader in group.values()}
    assert leading == {sequence.sequence_id for sequence in running if sequence.is_leading}, "leaders are miscounted"
    assert all(not s.is_leading or (s.lease is not None and s.lease.is_attached) for s in running), "a leader hides"
    led = {id(entry[1]) for sequence in running for entry in sequence.followers}
    assert all(id(follower) in led for follower in scheduler._following.values()), "a follower's leader is gone"
    scheduler.kv.check([sequence.lease for sequence in running if sequence.lease is not None])


def _check_sequence(scheduler: Scheduler, sequence: Sequence) -> None:
    name = f"sequence {sequence.sequence_id}"
    number = sequence.sequence_id
    places = [number in scheduler._waiting._members, number in scheduler._following, number in scheduler._running]
    states = [State.WAITING, State.FOLLOWING, State.RUNNING]
    assert places == [sequence.state is state for state in states], f"{name} is {sequence.state} but stands in {places}"
    assert sequence.finish_reason is None, f"{name} is live and ended"
    if sequence.state is not State.RUNNING:
        assert sequence.lease is None, f"{name} holds blocks without running"
        assert sequence.row is None, f"{name} has a row without running"
        return
    assert sequence.lease is not None, f"{name} runs without a lease"
    assert sequence.row is not None, f"{name} runs without a row"
    assert sequence.debt >= 1, f"{name} runs and owes nothing"
    size, blocks = scheduler.kv.block_size, sequence.lease.blocks
    assert len(blocks) * size >= sequence.num_computed, f"{name} computed more than its blocks hold"
    assert len(blocks) <= scheduler.kv.blocks_for(len(sequence.tokens)), f"{name} holds blocks for nothing"
    assert len(set(blocks)) == len(blocks), f"{name} has a block twice"
    num_published, num_full = sequence.lease.num_published, sequence.num_computed // size
    assert num_published <= num_full, f"{name} published what is not computed"
    assert num_published == num_full or not sequence.lease.is_attached, f"{name} keeps full blocks to itself"
