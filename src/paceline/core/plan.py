"""The two values that carry everything: a step plan goes down to an executor, a step result comes back.

A plan holds only what is new: rows that enter or leave, blocks added, tokens to compute. The executor keeps
token histories and block tables itself. A row is a slot of the executor, given to one sequence until it leaves.

One row's debt, and what a step pays of it (P prompt tokens, K known tokens, C already computed):

    0 ......... C ........... C+num_tokens ......... K
    [ KV there )[ this step  )[ later steps         )      samples iff C+num_tokens == K
"""

from array import array
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from paceline.core.request import BlockId, FinishReason, Pooling, SamplingParams, SequenceId


@dataclass(frozen=True, slots=True)
class NewRow:
    """A sequence enters slot `row` with every token it knows (prompt, then outputs from before a preemption).

    `blocks` are those its cached prefix came with, in order; a partly matched last block is a fresh one that a
    BlockCopy of the same plan fills. A row with `pooling` answers the step that computes the last of its tokens with
    its pooled hidden state.
    """

    row: int
    sequence_id: SequenceId
    tokens: "array[int]"
    num_prompt_tokens: int
    sampling: SamplingParams
    blocks: tuple[BlockId, ...]
    pooling: Pooling | None = None


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the first `num_tokens` slots of KV block `source` to `target`, all layers. Copies run in plan order, before
    any KV is written.
    """

    source: BlockId
    target: BlockId
    num_tokens: int


class RowStep(NamedTuple):
    """Compute positions [start, start + num_tokens) of slot `row`; sample after the last iff `samples`.

    `new_blocks` extend the row's block table first. `score_start`: None, or the first position p whose token's
    logprob given tokens < p is wanted; every prompt position in [score_start, start + num_tokens] is scored.

    A named tuple: one is made for each row of each step, and a frozen dataclass takes twice as long to make.
    """

    row: int
    start: int
    num_tokens: int
    new_blocks: tuple[BlockId, ...]
    samples: bool
    score_start: int | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step. Apply in this order: freed_rows, new_rows, copies, rows. Rows that decode come first."""

    step_index: int
    freed_rows: tuple[int, ...]
    new_rows: tuple[NewRow, ...]
    copies: tuple[BlockCopy, ...]
    rows: tuple[RowStep, ...]

    @property
    def num_tokens(self) -> int:
        """Tokens computed by this step."""
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural log probabilities at one position: the chosen token's, and the best alternatives, best first.

    `logprob` is None for a token that a grammar forced in a request without `num_logprobs`: it was never computed.
    """

    token_id: int
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class RowResult:
    """What one RowStep brought back: its new tokens (none unless `samples`) and the prompt scores asked for.

    One step may bring several tokens: those after the first are known to follow (a grammar forces them), and their KV
    is the row's debt. `end`: the row can't go on after these tokens (STOP: its grammar is complete; ERROR: its grammar
    gave out), whatever the stop rule says; only an ended row may sample and bring none. `pooled`: float32 [D] of a
    pooled row that is complete.
    """

    row: int
    sampled: tuple[TokenLogprobs, ...] = ()
    prompt_scores: tuple[TokenLogprobs, ...] = ()
    end: FinishReason | None = None
    pooled: bytes | None = None


@dataclass(frozen=True, slots=True)
class StepResult:
    """Row results in the order of the plan's rows, one each."""

    rows: tuple[RowResult, ...]


class Executor(Protocol):
    """Whatever can run a plan: the real model, the costed one of the simulator, the scripted one of tests."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Run the plan to its end and return one result a row."""
        ...
