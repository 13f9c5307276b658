"""The scripted executor: a model whose next token is a given function of the tokens so far. It computes nothing, but
keeps, per KV slot, which context the slot's KV would have been computed from, and refuses to read anything else: block
tables, copies, sharing, eviction and recompute are checked by every step.

It can be told to bring several tokens a step, as a grammar or a draft does: the same ones it would bring one by one.

Used where the real model adds nothing: tests of the scheduler, of the engine's process and of the server.
"""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from paceline.core.plan import NewRow, RowResult, RowStep, StepPlan, StepResult, TokenLogprobs
from paceline.core.request import BlockId, Pooling, SamplingParams

NextToken = Callable[["array[int]", SamplingParams], int]
NumForced = Callable[["array[int]", SamplingParams], int]
EMPTY_CONTEXT = 0


@dataclass(slots=True)
class ScriptedRow:
    """A slot's tokens and block table."""

    tokens: "array[int]"
    num_prompt: int
    sampling: SamplingParams
    blocks: list[BlockId] = field(default_factory=list)
    pooling: Pooling | None = None
    pooled: int = 0


class ScriptedExecutor:
    """Runs plans with `next_token(tokens so far, sampling)`; every logprob is a pure function of the context too.

    `num_forced` says how many tokens come at once after a sampled one; none without it.
    """

    def __init__(self, block_size: int, next_token: NextToken, num_forced: NumForced | None = None) -> None:
        self._block_size = block_size
        self._next_token = next_token
        self._num_forced = num_forced
        self._rows: dict[int, ScriptedRow] = {}
        self._slots: dict[tuple[BlockId, int], int] = {}
        self.num_computed_tokens = 0

    def execute(self, plan: StepPlan) -> StepResult:
        """Apply the plan in its order; AssertionError when a row would read KV that is not its own context's."""
        for row in plan.freed_rows:
            assert self._rows.pop(row, None) is not None, f"row {row} is freed but was never taken"
        for new in plan.new_rows:
            assert new.row not in self._rows, f"row {new.row} is taken twice"
            self._rows[new.row] = _make_row(new)
        for copy in plan.copies:
            for slot in range(copy.num_tokens):
                assert (copy.source, slot) in self._slots, f"block {copy.source} is copied before it is computed"
                self._slots[copy.target, slot] = self._slots[copy.source, slot]
        for step in plan.rows:
            self._compute(self._rows[step.row], step)
        return StepResult(tuple(self._answer(self._rows[step.row], step) for step in plan.rows))

    def _compute(self, row: ScriptedRow, step: RowStep) -> None:
        row.blocks.extend(step.new_blocks)
        context = EMPTY_CONTEXT
        assert len(row.blocks) * self._block_size >= step.start + step.num_tokens, f"row {step.row} lacks blocks"
        for position in range(step.start + step.num_tokens):
            context = _extend(context, row.tokens[position])
            cell = row.blocks[position // self._block_size], position % self._block_size
            if position >= step.start:
                self._slots[cell] = context
                row.pooled = _pool(row, context)
        self.num_computed_tokens += step.num_tokens

    def _answer(self, row: ScriptedRow, step: RowStep) -> RowResult:
        """Read back the whole context: it must still be there after every row of the step was written."""
        context, end = EMPTY_CONTEXT, step.start + step.num_tokens
        contexts = []
        for position in range(end):
            context = _extend(context, row.tokens[position])
            cell = row.blocks[position // self._block_size], position % self._block_size
            assert self._slots.get(cell) == context, f"row {step.row} reads another context's KV at position {position}"
            contexts.append(context)
        scores = []
        if step.score_start is not None:
            for position in range(step.score_start, min(end, row.num_prompt - 1) + 1):
                assert position - 1 >= step.start, "a position is scored whose logits this step does not compute"
                scores.append(
                    TokenLogprobs(row.tokens[position], _logprob(contexts[position - 1], row.tokens[position]))
                )
        sampled = tuple(self._sample(row, context)) if step.samples else ()
        is_pooled = row.pooling is not None and end == len(row.tokens)
        pooled = row.pooled.to_bytes(8, "little") if is_pooled else None
        return RowResult(step.row, sampled, tuple(scores), pooled=pooled)

    def _sample(self, row: ScriptedRow, context: int) -> Iterator[TokenLogprobs]:
        num_forced = self._num_forced(row.tokens, row.sampling) if self._num_forced else 0
        for _ in range(1 + num_forced):
            token = self._next_token(row.tokens, row.sampling)
            row.tokens.append(token)
            yield TokenLogprobs(token, _logprob(context, token))
            context = _extend(context, token)


def _make_row(new: NewRow) -> ScriptedRow:
    return ScriptedRow(array("i", new.tokens), new.num_prompt_tokens, new.sampling, list(new.blocks), new.pooling)


def _pool(row: ScriptedRow, context: int) -> int:
    """The context stands for the hidden state: the last one, or the sum of those that were computed."""
    return (row.pooled + context) & (2**64 - 1) if row.pooling is Pooling.MEAN else context


def _extend(context: int, token: int) -> int:
    """A context's fingerprint grown by a token (order matters, collisions are negligible)."""
    return (context * 6364136223846793005 + token + 1442695040888963407) & (2**64 - 1)


def _logprob(context: int, token: int) -> float:
    return -((_extend(context, token) >> 40) + 1) / 2**24
