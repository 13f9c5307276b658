"""What is asked of the planner: the load, the targets, the margins to keep, the price."""

import math
from dataclasses import dataclass

from paceline.errors import ConfigError

MAX_TOKENS = 1 << 24
MAX_RATE_PER_S = 1e9


@dataclass(frozen=True, slots=True)
class Load:
    """Requests as they come.

    rate_per_s: arrivals, Poisson; None: how many a replica can take is the question.
    input_tokens, output_tokens: means, S and G of the formulas.
    input_variation: squared coefficient of variation of prompt lengths: 0 all alike, 1 exponential.
    cached_share: share of each prompt that the prefix cache already holds: one beginning that all have in common.
    num_sessions: sequences that have to be held in memory at once, if that is demanded.
    """

    rate_per_s: float | None
    input_tokens: int
    output_tokens: int
    input_variation: float = 0.0
    cached_share: float = 0.0
    num_sessions: int | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            if not 1 <= getattr(self, name) <= MAX_TOKENS:
                raise ConfigError(f"load: {name} must be 1 to {MAX_TOKENS}, got {getattr(self, name)!r}")
        if self.rate_per_s is not None and not 0 < self.rate_per_s <= MAX_RATE_PER_S:
            raise ConfigError(
                f"load: rate_per_s must be above 0 and at most {MAX_RATE_PER_S:,.0f}, got {self.rate_per_s!r}"
            )
        if not 0.0 <= self.cached_share < 1.0:
            raise ConfigError(f"load: cached_share must be from 0 to below 1, got {self.cached_share!r}")
        if not 0.0 <= self.input_variation < math.inf:
            raise ConfigError(f"load: input_variation must be a number from 0, got {self.input_variation!r}")
        if self.num_sessions is not None and self.num_sessions < 1:
            raise ConfigError(f"load: num_sessions must be 1 or more, got {self.num_sessions!r}")

    @property
    def cached_tokens(self) -> int:
        """Tokens of a prompt that are not computed again."""
        return int(self.input_tokens * self.cached_share)

    @property
    def computed_tokens(self) -> int:
        """Tokens of a prompt that are prefilled; at least one, which yields the first token."""
        return self.input_tokens - self.cached_tokens

    @property
    def mean_context(self) -> float:
        """Tokens of context half-way through an answer: S + G/2."""
        return self.input_tokens + self.output_tokens / 2

    @property
    def last_context(self) -> int:
        """Tokens of a sequence at its end: S + G."""
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Targets:
    """What latency is allowed to be. `ttft_s` is held at p99, `tpot_s` as the mean of steps. None: no target."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigError(f"targets: {name} must be a positive time, got {value!r}")


@dataclass(frozen=True, slots=True)
class Margins:
    """What is kept free. `workspace_share`: memory for activations and buffers, and what the driver takes.

    `utilization`: the most of its capacity that a replica is planned for; queueing delay grows as 1/(1 − utilization).
    """

    workspace_share: float = 0.1
    utilization: float = 0.8

    def __post_init__(self) -> None:
        if not 0.0 <= self.workspace_share < 1.0:
            raise ConfigError(f"margins: workspace_share must be from 0 to below 1, got {self.workspace_share!r}")
        if not 0.0 < self.utilization <= 1.0:
            raise ConfigError(f"margins: utilization must be above 0 and at most 1, got {self.utilization!r}")
