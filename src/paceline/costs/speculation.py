"""Speculation in closed form: tokens a pass, speed-up, the best number of drafts, and when it stops paying.

A draft proposes K tokens, the target verifies them in one pass: token x is kept with probability min(1, p(x)/q(x)), the
first one rejected is replaced by a sample from max(0, p − q) normalised, and after K kept ones the pass gives one
bonus token (Leviathan et al. 2023, Chen et al. 2023). α, the chance that a draft is kept, is Σ min(p, q); with it alike
at every position

    tokens a pass  E = (1 − α^(K+1)) / (1 − α)             (Leviathan et al., eq. 1)
    speed-up         = E / (1 + K·c)                       (their Theorem 3.8, c = draft pass / target pass)

The second takes a target pass over K + 1 tokens for as cheap as one over 1. That holds while weights and KV are what a
step waits for; `speed_up_at` asks the cost model instead, and shows the batch where it ends.
"""

import math
from dataclasses import dataclass

from paceline.costs.step import StepTime, decode_work
from paceline.errors import ConfigError

MAX_DRAFTS = 16
MAX_BATCH = 1 << 16


@dataclass(frozen=True, slots=True)
class Speculation:
    """α, the chance that a draft is kept; K drafts a pass; c, a draft's pass as a share of the target's plain one."""

    acceptance: float
    num_drafts: int
    draft_cost: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.acceptance <= 1.0:
            raise ConfigError(f"acceptance rate must be from 0 to 1, got {self.acceptance!r}")
        if not 0 <= self.num_drafts <= 1024:
            raise ConfigError(f"drafts a pass must be 0 to 1024, got {self.num_drafts!r}")
        if not (math.isfinite(self.draft_cost) and self.draft_cost >= 0.0):
            raise ConfigError(f"draft cost must be a number from 0, got {self.draft_cost!r}")

    @property
    def tokens_per_pass(self) -> float:
        """Expected tokens of one target pass, the bonus or the replacement included."""
        if self.acceptance == 1.0:
            return self.num_drafts + 1.0
        return (1.0 - self.acceptance ** (self.num_drafts + 1)) / (1.0 - self.acceptance)

    @property
    def speed_up(self) -> float:
        """Against plain decoding, verification for free."""
        return self.tokens_per_pass / (1.0 + self.num_drafts * self.draft_cost)

    def speed_up_at(self, step_time: StepTime, num_rows: int, context_tokens: float) -> float:
        """Against plain decoding of this batch, verification at what the cost model says."""
        plain_s = step_time.step_s(decode_work(num_rows, context_tokens))
        verify_s = step_time.step_s(decode_work(num_rows, context_tokens, self.num_drafts))
        return self.tokens_per_pass * plain_s / (verify_s + self.num_drafts * self.draft_cost * plain_s)

    def tpot_s(self, step_time: StepTime, num_rows: int, context_tokens: float) -> float:
        """Time a token of each stream, drafts included."""
        plain_s = step_time.step_s(decode_work(num_rows, context_tokens))
        return plain_s / self.speed_up_at(step_time, num_rows, context_tokens)


def best_speculation(acceptance: float, draft_cost: float, max_drafts: int = MAX_DRAFTS) -> Speculation:
    """The K with the largest speed-up; K = 0 where none pays."""
    tried = (Speculation(acceptance, num_drafts, draft_cost) for num_drafts in range(max_drafts + 1))
    return max(tried, key=lambda each: each.speed_up)


def best_at(
    step_time: StepTime, acceptance: float, draft_cost: float, num_rows: int, context_tokens: float
) -> Speculation:
    """The K with the largest speed-up for this batch; K = 0 where none pays."""
    tried = (Speculation(acceptance, num_drafts, draft_cost) for num_drafts in range(MAX_DRAFTS + 1))
    return max(tried, key=lambda each: each.speed_up_at(step_time, num_rows, context_tokens))


def last_paying_batch(
    speculation: Speculation, step_time: StepTime, context_tokens: float, max_batch: int = MAX_BATCH
) -> int | None:
    """The largest batch with a speed-up above 1; 0 if it never pays, None if it still does at `max_batch`.

    Halving finds it: a larger batch only moves a step towards arithmetic, of which verification needs K + 1 times as
    much.
    """

    def pays(num_rows: int) -> bool:
        return speculation.speed_up_at(step_time, num_rows, context_tokens) > 1.0

    if pays(max_batch):
        return None
    low, high = 0, max_batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if pays(middle) else (low, middle)
    return low
