"""How well a model predicts a text, and how far another format of it, or another model, is from that.

All in nats, over the full vocabulary, in float64, one value a scored token. KL(reference ‖ candidate) is the sum over
the vocabulary of p_reference · (ln p_reference − ln p_candidate): what it costs to believe the candidate when the
reference is right. Takes two sources of logits, however they were made.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.offline.windows import Window, WindowLogits
from paceline.ops.protocol import Float32Array, Int32Array

Float64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scores:
    """−ln p of every scored token."""

    surprisals: Float64Array

    @property
    def perplexity(self) -> float:
        """exp of their mean."""
        return math.exp(self.surprisals.mean())

    @property
    def perplexity_error(self) -> float:
        """One standard error, as if tokens were independent."""
        return self.perplexity * _standard_error(self.surprisals)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two models over the same tokens. `divergences`: KL(reference ‖ candidate); `agreements`: the same best token."""

    reference: Scores
    candidate: Scores
    divergences: Float64Array
    agreements: NDArray[np.bool_]

    @property
    def perplexity_ratio(self) -> float:
        """Candidate's over reference's."""
        return math.exp((self.candidate.surprisals - self.reference.surprisals).mean())

    @property
    def perplexity_ratio_error(self) -> float:
        """One standard error of the ratio; the tokens are the same, so most of the texts' own spread cancels."""
        return self.perplexity_ratio * _standard_error(self.candidate.surprisals - self.reference.surprisals)

    @property
    def top_agreement(self) -> float:
        """Share of positions where both like the same token best."""
        return float(self.agreements.mean())

    @property
    def mean_kl(self) -> float:
        """Mean divergence."""
        return float(self.divergences.mean())

    @property
    def p99_kl(self) -> float:
        """The divergence that 99 % of positions do not pass."""
        return float(np.quantile(self.divergences, 0.99))

    @property
    def max_kl(self) -> float:
        """The worst position's."""
        return float(self.divergences.max())


OnScored = Callable[[int], None]


def score(model: WindowLogits, windows: Iterable[Window], on_scored: OnScored = lambda num_tokens: None) -> Scores:
    """The surprisal of every scored token; `on_scored` hears how many more there are."""
    parts = []
    for window in windows:
        place = window.first_scored
        for logits in model.tiles(window):
            parts.append(surprisals(log_softmax(logits), window.tokens[place : place + len(logits)]))
            place += len(logits)
            on_scored(len(logits))
    return Scores(np.concatenate(parts))


def compare(
    reference: WindowLogits,
    candidate: WindowLogits,
    windows: Iterable[Window],
    on_scored: OnScored = lambda num_tokens: None,
) -> Comparison:
    """Both over the same tokens, a tile of each at a time. They must have one vocabulary and one step size."""
    assert reference.vocab_size == candidate.vocab_size, "two vocabularies can't be compared"
    parts: list[tuple[Float64Array, Float64Array, Float64Array, NDArray[np.bool_]]] = []
    for window in windows:
        place = window.first_scored
        for ours, theirs in zip(reference.tiles(window), candidate.tiles(window), strict=True):
            targets = window.tokens[place : place + len(ours)]
            p, q = log_softmax(ours), log_softmax(theirs)
            agrees = ours.argmax(-1) == theirs.argmax(-1)
            parts.append((surprisals(p, targets), surprisals(q, targets), divergence(p, q), agrees))
            place += len(ours)
            on_scored(len(ours))
    ours_all, theirs_all, divergences, agreements = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Comparison(Scores(ours_all), Scores(theirs_all), divergences, agreements)


def log_softmax(logits: Float32Array) -> Float64Array:
    """ln of the probabilities, row by row."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(-1, keepdims=True))
    return shifted


def surprisals(logprobs: Float64Array, targets: Int32Array) -> Float64Array:
    """−ln p of one token a row."""
    values: Float64Array = -logprobs[np.arange(len(targets)), targets]
    return values


def divergence(reference: Float64Array, candidate: Float64Array) -> Float64Array:
    """KL(reference ‖ candidate) a row, from logprobs."""
    values: Float64Array = (np.exp(reference) * (reference - candidate)).sum(-1)
    return values


def _standard_error(values: Float64Array) -> float:
    return float(values.std() / math.sqrt(len(values)))
