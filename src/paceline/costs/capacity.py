"""What one replica can take: the rate, the latency and the batch, which determine each other.

Prefill and decode share the cards. With B sequences decoding, each step takes TPOT(B); at λ requests/s prefill takes a
share ρ = λ·t_prefill of the time, so tokens come every TPOT(B)/(1 − ρ). By Little's law B = λ·G·TPOT(B)/(1 − ρ), hence

    λ(B) = B / (G·TPOT(B) + B·t_prefill)      and      effective TPOT = TPOT(B) + B·t_prefill/G

Both grow with B, so the largest batch inside the targets and the memory is the replica's capacity; halving finds it.
Where already B = 1 breaks a target, the rate is what is halved: TPOT(1)/(1 − ρ) and the queue shrink with it.

TTFT = the wait for prompts that came before + the step in progress, if any + the own prefill. The wait is that of an
M/G/1 queue of prefills: its mean by Pollaczek and Khinchine, its p99 by an exponential tail of the same mean.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.load import Load, Margins, Targets
from paceline.costs.memory import memory_fit
from paceline.costs.speculation import MAX_BATCH, best_at
from paceline.costs.step import StepTime, decode_work, prefill_work

TAIL = 0.01
# Where arithmetic binds, batches differ in rate by what a float rounds.
ROUNDING = 1e-9
PARTS = 1024
DEFAULT_MARGINS = Margins()


@dataclass(frozen=True, slots=True)
class Drafting:
    """Speculation as a plan assumes it: acceptance rate and draft cost; the drafts a pass are chosen for each batch."""

    acceptance: float
    draft_cost: float


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """A replica that runs `batch` sequences. `tpot_s`: with prefill's share; `decode_step_s`: nothing else running;
    `e2e_s`: mean TTFT + (G − 1)·TPOT.
    """

    batch: int
    rate_per_s: float
    decode_step_s: float
    tpot_s: float
    prefill_share: float
    ttft_s: float
    ttft_p99_s: float
    e2e_s: float

    @property
    def streams_tokens_per_s(self) -> float:
        """Tokens of all streams together: B / TPOT."""
        return self.batch / self.tpot_s


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a model under a load. `step_time`: who predicts steps, if not the datasheet estimator."""

    estimator: DatasheetEstimator
    load: Load
    margins: Margins = DEFAULT_MARGINS
    step_time: StepTime | None = None
    drafting: Drafting | None = None

    @property
    def costs(self) -> StepTime:
        """Who predicts the time of steps."""
        return self.estimator if self.step_time is None else self.step_time

    @property
    def num_prefilled_together(self) -> int:
        """Prompts short of the ridge point are prefilled together: alone each would read all weights for itself."""
        return max(1, math.ceil(self.estimator.ridge_batch / self.load.computed_tokens))

    @property
    def prefill_s(self) -> float:
        """What a prompt takes of the cards."""
        together = self.num_prefilled_together
        return self.costs.step_s(prefill_work(together, self.load.computed_tokens, self.load.cached_tokens)) / together

    @property
    def own_prefill_s(self) -> float:
        """A prompt's time in prefill when it is alone."""
        return self.costs.step_s(prefill_work(1, self.load.computed_tokens, self.load.cached_tokens))

    @property
    def memory_limit(self) -> int:
        """Sequences that fit."""
        return memory_fit(self.estimator, self.load, self.margins).num_sequences

    def decode_step_s(self, batch: int) -> float:
        """Time a token of each of `batch` streams, nothing else running; half-way through their answers."""
        context = self.load.mean_context
        if self.drafting is not None:
            best = best_at(self.costs, self.drafting.acceptance, self.drafting.draft_cost, batch, context)
            return best.tpot_s(self.costs, batch, context)
        return self.costs.step_s(decode_work(batch, context))

    def at_batch(self, batch: int) -> OperatingPoint:
        """The replica with so many sequences running."""
        rate_per_s = batch / (self.load.output_tokens * self.decode_step_s(batch) + batch * self.prefill_s)
        return self._point(batch, rate_per_s)

    def at_rate(self, rate_per_s: float) -> OperatingPoint | None:
        """The replica at a rate, with the smallest batch that keeps up; None where no batch does."""

        def falls_behind(batch: int) -> bool:
            return self.at_batch(batch).rate_per_s * (1.0 + ROUNDING) < rate_per_s

        if falls_behind(MAX_BATCH):
            return None
        batch = largest_that(falls_behind, MAX_BATCH) + 1
        return self._point(batch, min(rate_per_s, self.at_batch(batch).rate_per_s))

    def capacity(self, targets: Targets) -> OperatingPoint | None:
        """The most that the replica takes inside targets and memory; None where one request alone is too much.

        With long prompts and short answers one sequence at a time may be too many: prefill takes nearly all the time
        then, and prompts wait for one another. What is taken is less than that.
        """
        batch = self.largest_batch(targets)
        if batch > 0:
            return self.at_batch(batch)
        if self.memory_limit == 0:
            return None
        parts = largest_that(lambda tried: not broken_targets(self.at_part(tried), targets), PARTS - 1)
        return self.at_part(parts) if parts > 0 else None

    def at_part(self, parts: int) -> OperatingPoint:
        """The replica at so many of PARTS of the rate at which one sequence is always under way."""
        return self._point(1, self.at_batch(1).rate_per_s * parts / PARTS)

    def _point(self, batch: int, rate_per_s: float) -> OperatingPoint:
        step_s, prefill_s = self.decode_step_s(batch), self.prefill_s
        share = rate_per_s * prefill_s
        mean_s, p99_s = queue_wait_s(share, prefill_s, self.load.input_variation)
        tpot_s = step_s / (1.0 - share)
        # Streams under way are Poisson about their mean, as in a queue where nobody waits.
        at_work = 1.0 - math.exp(-rate_per_s * self.load.output_tokens * tpot_s)
        ttft_s = mean_s + at_work * step_s / 2 + self.own_prefill_s
        return OperatingPoint(
            batch=batch,
            rate_per_s=rate_per_s,
            decode_step_s=step_s,
            tpot_s=tpot_s,
            prefill_share=share,
            ttft_s=ttft_s,
            ttft_p99_s=p99_s + step_s + self.own_prefill_s,
            e2e_s=ttft_s + (self.load.output_tokens - 1) * tpot_s,
        )

    def largest_batch(self, targets: Targets) -> int:
        """The largest batch inside targets and memory, prefill's share counted; 0 where one sequence is too many."""
        limit = min(self.memory_limit, MAX_BATCH)
        return largest_that(lambda batch: not broken_targets(self.at_batch(batch), targets), limit)

    def largest_decode_batch(self, targets: Targets) -> int:
        """The same if there were no prefill: the closed form of a card that only decodes."""
        limit = min(self.memory_limit, MAX_BATCH)
        if targets.tpot_s is None:
            return limit
        allowed_s = targets.tpot_s
        return largest_that(lambda batch: self.decode_step_s(batch) <= allowed_s, limit)


def queue_wait_s(share: float, service_s: float, variation: float) -> tuple[float, float]:
    """(mean, p99) of the wait in an M/G/1 queue; `share` is its utilization, below 1."""
    assert 0.0 <= share < 1.0, f"a queue with utilization {share} has no steady state"
    waiting_s = service_s * (1.0 + variation) / (2.0 * (1.0 - share))
    return share * waiting_s, waiting_s * math.log(share / TAIL) if share > TAIL else 0.0


def broken_targets(point: OperatingPoint, targets: Targets) -> tuple[str, ...]:
    """Names of the targets that the point misses."""
    broken = []
    if targets.tpot_s is not None and point.tpot_s > targets.tpot_s:
        broken.append("TPOT target")
    if targets.ttft_s is not None and point.ttft_p99_s > targets.ttft_s:
        broken.append("TTFT target")
    return tuple(broken)


def largest_that(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number in [1, limit] that `holds`, or 0. It holds up to some number and not from there."""
    low, high = 0, limit + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
