"""The costed executor: runs any plan in no time at all, and says how long the step would have taken.

A row answers with FILLER tokens until its request has its drawn length, then with STOP_TOKEN; the draw is invisible to
the scheduler, as in real life. What a step costs is decided by a StepTime, from counts alone. The executor moves
the virtual clock; it never touches a queue.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.core.plan import NewRow, RowResult, StepPlan, StepResult, TokenLogprobs
from paceline.core.request import SequenceId
from paceline.costs.step import StepTime, StepWork

FILLER_TOKEN = 0
STOP_TOKEN = 1

# How many tokens a sequence will answer with, the last one included.
OutputLength = Callable[[SequenceId], int]


@dataclass(slots=True)
class VirtualClock:
    """The time of one replica, and how long it was at work. Only the executor moves it forward, step by step; the
    simulation sets it to the time at which an idle replica gets work.
    """

    now_s: float = 0.0
    busy_s: float = 0.0


@dataclass(slots=True)
class CostedRow:
    """A slot: its prompt's length, the tokens it came in with (more, after a preemption), and how many it will have."""

    num_prompt: int = 0
    num_known: int = 0
    num_at_end: int = 0
    going: RowResult = field(default_factory=lambda: RowResult(0))
    ending: RowResult = field(default_factory=lambda: RowResult(0))
    silent: RowResult = field(default_factory=lambda: RowResult(0))


class CostedExecutor:
    """Answers plans of one scheduler and charges `clock` for them. `num_rows`: slots the scheduler may use."""

    def __init__(self, num_rows: int, step_time: StepTime, clock: VirtualClock, output_length: OutputLength) -> None:
        self._step_time = step_time
        self._clock = clock
        self._output_length = output_length
        # The same few answers all the time: they are made once.
        going, ending = (TokenLogprobs(FILLER_TOKEN, None),), (TokenLogprobs(STOP_TOKEN, None),)
        self._rows = [
            CostedRow(going=RowResult(row, going), ending=RowResult(row, ending), silent=RowResult(row))
            for row in range(num_rows)
        ]

    def execute(self, plan: StepPlan) -> StepResult:
        """Answer every row; the clock moves by what the step costs."""
        for new in plan.new_rows:
            self._enter(new)
        results, work = self._answer(plan)
        cost_s = self._step_time.step_s(work)
        self._clock.now_s += cost_s
        self._clock.busy_s += cost_s
        return StepResult(tuple(results))

    def _enter(self, new: NewRow) -> None:
        row = self._rows[new.row]
        row.num_prompt, row.num_known = new.num_prompt_tokens, len(new.tokens)
        row.num_at_end = row.num_prompt + self._output_length(new.sequence_id)

    def _answer(self, plan: StepPlan) -> tuple[list[RowResult], StepWork]:
        """One loop over the rows for both, since it is what a simulation spends its time in."""
        rows, results = self._rows, []
        num_prefill = num_decoding = num_chunks = context = pairs = num_sampled = 0
        for step in plan.rows:
            row, num_tokens = rows[step.row], step.num_tokens
            end = step.start + num_tokens
            context += end
            if step.start >= row.num_known:
                num_decoding += num_tokens
                pairs += num_tokens * end
            else:
                num_chunks += 1
                num_prefill += num_tokens
                pairs += num_tokens * step.start + num_tokens * (num_tokens + 1) // 2
            if not step.samples:
                results.append(row.silent)
            else:
                num_sampled += 1
                results.append(row.going if end + 1 < row.num_at_end else row.ending)
        return results, StepWork(
            num_prefill_tokens=num_prefill,
            num_decode_rows=num_decoding,
            num_prefill_rows=num_chunks,
            context_tokens=context,
            attended_pairs=pairs,
            num_sampled=num_sampled,
        )
