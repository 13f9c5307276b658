"""The fitted step time: what steps of this machine took, as a law with a few named terms.

    time = overhead
         + token · max(tokens, ridge)      weights are read once: below the ridge a token more costs nothing
         + context · context_tokens        KV read
         + pair · attended_pairs           attention arithmetic
         + sampled · num_sampled           the head, sampling, what is done once a row

`ridge` is the number of tokens at which reading the weights and multiplying by them take equally long, so the weights
cost token·ridge. All coefficients are zero or more: a law with a negative one would reward work. The fit is in
`fit.py`; here the law only answers.
"""

import math
from dataclasses import astuple, dataclass

from paceline.costs.step import StepWork
from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FittedStepTime:
    """Seconds, and seconds a count; `ridge_tokens` is a count."""

    overhead_s: float
    token_s: float
    ridge_tokens: float
    context_token_s: float
    pair_s: float
    sampled_s: float

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) and value >= 0.0 for value in astuple(self)):
            raise ConfigError(f"fitted step time: every term must be a number from 0, got {self}")
        if self.overhead_s + self.token_s == 0.0:
            raise ConfigError(
                f"fitted step time: a step must take some time, got 0 for overhead_s and token_s in {self}"
            )

    @property
    def weights_s(self) -> float:
        """What reading the weights takes of each step."""
        return self.token_s * self.ridge_tokens

    def step_s(self, work: StepWork) -> float:
        """The law."""
        return (
            self.overhead_s
            + self.token_s * max(work.num_tokens, self.ridge_tokens)
            + self.context_token_s * work.context_tokens
            + self.pair_s * work.attended_pairs
            + self.sampled_s * work.num_sampled
        )


@dataclass(frozen=True, slots=True)
class FitError:
    """How far a law is from steps that it was not fitted to. Errors are |predicted − measured| / measured.

    `bias`: predicted over measured time, all steps together.
    """

    num_steps: int
    median: float
    p90: float
    largest: float
    bias: float
