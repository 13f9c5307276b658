"""The three judgements of the scheduler, as functions of what it knows: who is served next, who is preempted, and how
much room running sequences will still need. Pure; the scheduler holds the state.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from paceline.core.kv import KvManager
from paceline.core.sequence import Sequence

AGEING_STEPS = 8
PRIOR_OUTPUT_TOKENS = 256
LENGTH_WINDOW = 512
MIN_SAMPLES = 4
GOLDEN_RATIO = 0.618_033_988_749_895

# Given a sequence and the number of the step: smaller is paid first. The scheduler is told its order when it is made.
ChunkOrder = Callable[[Sequence, int], tuple[bool, int, int]]


def service_key(sequence: Sequence, step_index: int) -> tuple[bool, int, int]:
    """Order in which prefill chunks are paid: whoever has waited `AGEING_STEPS` steps, the longest unserved first;
    then the shortest remaining debt.

    Shortest-remaining-first keeps short prompts fast behind a long one; ageing gives the long one at least every
    eighth step. Among several that starve the shortest must not win again, or the long one waits for ever.
    """
    last_served_step = sequence.last_served_step
    is_fresh = step_index - last_served_step < AGEING_STEPS
    return (is_fresh, sequence.debt if is_fresh else last_served_step, sequence.sequence_id)


def first_come_key(sequence: Sequence, step_index: int) -> tuple[bool, int, int]:
    """The order others use, for comparison: prefill chunks in order of arrival, so the oldest prompt takes every step
    until it is computed.
    """
    return (False, 0, sequence.sequence_id)


def choose_victim(running: Iterable[Sequence], kv: KvManager) -> Sequence | None:
    """The sequence to preempt: of the least urgent priority, least recompute per block freed, the latest admitted
    among equals.

    `running` is in order of admission; the first is never chosen: it is feasible, so it can finish alone, and that
    is the proof of progress. One whose blocks are all shared frees nothing by itself and comes last. None if there is
    only the first.
    """
    best: Sequence | None = None
    best_cost = (True, 0, 0.0)
    for index, sequence in enumerate(running):
        if index == 0:
            continue
        assert sequence.lease is not None, "a running sequence has no lease"
        num_freed = kv.num_blocks_freed_by(sequence.lease)
        cost = (num_freed == 0, -sequence.request.priority, recompute_cost(sequence.num_computed) / max(num_freed, 1))
        if best is None or cost <= best_cost:
            best, best_cost = sequence, cost
    return best


def recompute_cost(num_tokens: int) -> float:
    """Relative cost of computing a context again: linear work, and attention that grows with its square."""
    return num_tokens * (1.0 + num_tokens / 4096)


class Forecast(Protocol):
    """The blocks that an admission must leave free, row by row."""

    def add(self, sequence: Sequence, num_held: int) -> None:
        """A sequence that holds (or is about to hold) `num_held` tokens of its own."""
        ...

    def peak_blocks(self) -> float:
        """Blocks to leave free for the growth of the sequences added."""
        ...


class Reserve(Protocol):
    """How much growth of running sequences an admission must leave room for."""

    def observe(self, num_output: int) -> None:
        """A sequence finished with this many output tokens."""
        ...

    def forecast(self) -> Forecast:
        """An empty forecast with what is known now."""
        ...


class LearnedReserve:
    """Reserves what running sequences will need at their highest, by lengths learned from finished ones.

    Each sequence is given one plausible end: the u-quantile of the last `LENGTH_WINDOW` finished lengths longer than
    what it has sampled, with u fixed for the sequence and spread evenly over sequences. Giving everyone the *mean*
    end instead would have them all end together, and reserve for a crowd that never comes. A sequence that outlived
    almost all is expected to double; before anything has finished, half its max_tokens, at most `PRIOR_OUTPUT_TOKENS`.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def observe(self, num_output: int) -> None:
        """Take in a finished length, forget the oldest past the window. O(window).

        Scored and pooled prompts (no output) tell nothing about growth, and must not push out those that do.
        """
        if num_output == 0:
            return
        self._recent.append(num_output)
        insort(self._sorted, num_output)
        if len(self._recent) > LENGTH_WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    def forecast(self) -> "PeakForecast":
        """An empty forecast that asks this reserve for expected ends."""
        return PeakForecast(self, self._block_size)

    def remaining(self, sequence: Sequence) -> float:
        """Output tokens the sequence is expected to add; never more than it may. O(log window)."""
        num_output = sequence.num_output
        max_remaining = sequence.request.stop.max_tokens - num_output
        index = bisect_right(self._sorted, num_output)
        num_longer = len(self._sorted) - index
        if num_longer >= MIN_SAMPLES:
            quantile = sequence.sequence_id * GOLDEN_RATIO % 1.0
            expected = float(self._sorted[index + int(quantile * num_longer)] - num_output)
        else:
            prior = min((num_output + max_remaining) / 2, PRIOR_OUTPUT_TOKENS)
            expected = max(prior - num_output, num_output, 1.0)
        return min(expected, max_remaining)


class PeakForecast:
    """The highest future rise of KV use above today's, if every sequence ends when expected.

    Sequence i holds h_i tokens of its own, will add r_i more, then lets go of all of it. With r ascending, just
    before i ends the rise is r_i·(n - i) - Σ_{j<i} h_j; the forecast is the maximum over i, plus a block a
    sequence for rounding up and for ends that come later than expected. Reserving Σ r_i instead would leave half the
    pool empty: ends are spread, and each one frees a whole sequence.
    """

    def __init__(self, reserve: LearnedReserve, block_size: int) -> None:
        self._reserve = reserve
        self._block_size = block_size
        self._ends: list[tuple[float, int]] = []

    def add(self, sequence: Sequence, num_held: int) -> None:
        """Keep the ends sorted. O(n), a memory move."""
        insort(self._ends, (self._reserve.remaining(sequence), num_held))

    def peak_blocks(self) -> float:
        """The maximum over the expected ends. O(n)."""
        peak, released, alive = 0.0, 0, len(self._ends)
        for remaining, held in self._ends:
            peak = max(peak, remaining * alive - released)
            released += held
            alive -= 1
        return peak / self._block_size + len(self._ends)
