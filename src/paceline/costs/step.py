"""What is in one step, and who says how long it takes: the seam between the cost model and its users.

Owns the counts that a step's time can depend on (`StepWork`), the protocol of whatever predicts it (`StepTime`), and
the simplest of those, the linear law of the published batching tables. Never knows which model or which hardware.
"""

from dataclasses import dataclass
from typing import Protocol

from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StepWork:
    """The contents of one step, as counts.

    num_prefill_tokens: prompt tokens computed, all rows together.
    num_decode_rows: rows that compute one known token and sample the next; a row that prefills is not one of them.
    num_prefill_rows: rows that compute a chunk of their prompt.
    context_tokens: tokens whose KV is read, summed over rows, those of this step included.
    attended_pairs: (query, key) pairs of the attention, summed over rows: what its arithmetic is proportional to.
    num_sampled: rows that end the step with a token.
    num_draft_tokens: drafted tokens verified, beside the rows' own.

    A chunk of n tokens behind c cached ones reads c + n tokens of KV and attends n·c + n·(n + 1)/2 pairs.
    """

    num_prefill_tokens: int = 0
    num_decode_rows: int = 0
    num_prefill_rows: int = 0
    context_tokens: int = 0
    attended_pairs: int = 0
    num_sampled: int = 0
    num_draft_tokens: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens that go through the layers."""
        return self.num_prefill_tokens + self.num_decode_rows + self.num_draft_tokens


class StepTime(Protocol):
    """Predicts the time of a step from what is in it. The same work always takes the same time."""

    def step_s(self, work: StepWork) -> float:
        """Seconds; positive and finite."""
        ...


@dataclass(frozen=True, slots=True)
class LinearLaw:
    """A fixed part, a part per token prefilled, a part per row that decodes: the law behind the batching tables.

    A drafted token costs what a prefilled one does: it is one more column of the same matrix products.
    """

    fixed_s: float = 0.005
    prefill_token_s: float = 2e-5
    decode_row_s: float = 5e-4

    def __post_init__(self) -> None:
        for name in ("fixed_s", "prefill_token_s", "decode_row_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"linear law: {name} must be a number from 0, got {getattr(self, name)!r}")
        if self.fixed_s + self.prefill_token_s + self.decode_row_s == 0.0:
            raise ConfigError("linear law: a step must take some time, got 0 for all of fixed, prefill and decode")

    def step_s(self, work: StepWork) -> float:
        """The law."""
        num_columns = work.num_prefill_tokens + work.num_draft_tokens
        return self.fixed_s + self.prefill_token_s * num_columns + self.decode_row_s * work.num_decode_rows


def prefill_work(num_rows: int, num_tokens: int, num_cached: int = 0) -> StepWork:
    """`num_rows` prompts prefilled whole in one step: `num_tokens` computed each, behind `num_cached` cached ones."""
    return StepWork(
        num_prefill_tokens=num_rows * num_tokens,
        num_prefill_rows=num_rows,
        context_tokens=num_rows * (num_cached + num_tokens),
        attended_pairs=num_rows * (num_tokens * num_cached + num_tokens * (num_tokens + 1) // 2),
        num_sampled=num_rows,
    )


def decode_work(num_rows: int, context_tokens: float, num_drafts: int = 0) -> StepWork:
    """`num_rows` sequences with `context_tokens` each (a mean may be a fraction) and `num_drafts` drafts to verify."""
    total = round(num_rows * context_tokens)
    return StepWork(
        num_decode_rows=num_rows,
        context_tokens=total,
        attended_pairs=total * (1 + num_drafts),
        num_sampled=num_rows,
        num_draft_tokens=num_rows * num_drafts,
    )
