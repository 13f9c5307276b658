"""The costed executor with drafts: each decoding row verifies K drafted tokens a step, and keeps those that are drawn.

A draft of one position is kept with the chance α, by a draw that depends on the request's seed and the position alone:
the same request keeps the same drafts in every batch, chunked, preempted or not. A row's step brings the kept drafts
and one token more; the first refused one ends the row's step. The scheduler takes several tokens of a row as it takes
those that a grammar forces, and knows nothing of drafts.

    known tokens, start + n = end            drafts of end, end + 1, …    kept, kept, refused
    [ … start )[ debt of n tokens )[ K + 1 columns of the verify step )   → 3 tokens: two drafts, one replacement

What a step costs, with c and K of `costs/speculation.py`: the step with K + 1 columns in each decoding row, and
K·c times the step in which those rows decode without drafts. Where this is not an engine that drafts: the plan that
follows has the kept tokens as debt, so they take places of its token budget, though their KV was computed by the verify
step (it is not charged twice); blocks are not held for drafts before they are kept; K is the same at the end of an
answer, where less would do.
"""

from dataclasses import dataclass

from paceline.core.plan import NewRow, RowResult, RowStep, StepPlan, StepResult, TokenLogprobs
from paceline.core.request import SEED_MASK, SEED_STRIDE
from paceline.costs.speculation import Speculation
from paceline.costs.step import StepTime, StepWork
from paceline.sim.executor import FILLER_TOKEN, STOP_TOKEN, OutputLength, VirtualClock
from paceline.sim.mixed import mixed

FILLER = TokenLogprobs(FILLER_TOKEN, None)
STOP = TokenLogprobs(STOP_TOKEN, None)


@dataclass(frozen=True, slots=True)
class DraftedRow:
    """A slot: the tokens its sequence came in with, how many it will have, and where its draws begin."""

    num_known: int
    num_at_end: int
    draws: int


class SpeculatingExecutor:
    """Answers plans of one scheduler and charges `clock` for them, as CostedExecutor does. `num_rows`: slots."""

    def __init__(
        self,
        num_rows: int,
        step_time: StepTime,
        clock: VirtualClock,
        output_length: OutputLength,
        speculation: Speculation,
    ) -> None:
        self._step_time = step_time
        self._clock = clock
        self._output_length = output_length
        self._speculation = speculation
        self._rows = [DraftedRow(0, 0, 0) for _ in range(num_rows)]

    def execute(self, plan: StepPlan) -> StepResult:
        """Answer every row; the clock moves by what the step and its drafts cost."""
        for new in plan.new_rows:
            self._rows[new.row] = self._enter(new)
        cost_s = self._cost_s(plan)
        self._clock.now_s += cost_s
        self._clock.busy_s += cost_s
        return StepResult(tuple(self._answer(step) for step in plan.rows))

    def _enter(self, new: NewRow) -> DraftedRow:
        num_at_end = new.num_prompt_tokens + self._output_length(new.sequence_id)
        return DraftedRow(len(new.tokens), num_at_end, mixed(new.sampling.seed))

    def _cost_s(self, plan: StepPlan) -> float:
        num_prefill = num_chunks = num_decoding = 0
        prefill_context = decode_context = prefill_pairs = 0
        for step in plan.rows:
            end = step.start + step.num_tokens
            if step.start >= self._rows[step.row].num_known:
                num_decoding += 1
                decode_context += end
            else:
                num_chunks += 1
                num_prefill += step.num_tokens
                prefill_context += end
                prefill_pairs += step.num_tokens * step.start + step.num_tokens * (step.num_tokens + 1) // 2
        num_drafts = self._speculation.num_drafts
        step_s = self._step_time.step_s(
            StepWork(
                num_prefill_tokens=num_prefill,
                num_decode_rows=num_decoding,
                num_prefill_rows=num_chunks,
                context_tokens=prefill_context + decode_context,
                attended_pairs=prefill_pairs + decode_context * (num_drafts + 1),
                num_sampled=sum(step.samples for step in plan.rows),
                num_draft_tokens=num_decoding * num_drafts,
            )
        )
        if num_decoding == 0:
            return step_s
        plain = StepWork(0, num_decoding, 0, decode_context, decode_context, num_decoding)
        return step_s + num_drafts * self._speculation.draft_cost * self._step_time.step_s(plain)

    def _answer(self, step: RowStep) -> RowResult:
        """FILLER tokens, the last of an answer a STOP; a prompt's step brings one, since nothing was drafted yet."""
        if not step.samples:
            return RowResult(step.row)
        row = self._rows[step.row]
        end = step.start + step.num_tokens
        num_tokens = 1 if step.start < row.num_known else 1 + self._num_kept(row.draws, end)
        num_remaining = row.num_at_end - end
        if num_tokens < num_remaining:
            return RowResult(step.row, (FILLER,) * num_tokens)
        return RowResult(step.row, (*(FILLER,) * (num_remaining - 1), STOP))

    def _num_kept(self, draws: int, end: int) -> int:
        """Drafts kept of those for positions end, end + 1, …"""
        for number in range(self._speculation.num_drafts):
            if drawn(draws, end + number) >= self._speculation.acceptance:
                return number
        return self._speculation.num_drafts


def drawn(draws: int, position: int) -> float:
    """Uniform in [0, 1): a function of where the draws begin and of the position."""
    return mixed(draws + position * SEED_STRIDE) / (SEED_MASK + 1)
