"""Speculation checked by sampling: real draws on small bigram models, against the closed form.

A bigram model's next token depends on the last one only, so its exact distribution is a row of a table. Target and
draft share their logits; the draft reads them at another temperature, which sets how well it guesses. Randomness is an
argument: a function that gives uniform numbers in [0, 1).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.costs.speculation import Speculation

Draw = Callable[[], float]
Row = Sequence[float]
Table = Sequence[Row]


@dataclass(frozen=True, slots=True)
class Sampled:
    """What sampling found at one draft temperature, beside the closed form's answer for the α it saw."""

    draft_temperature: float
    acceptance: float
    tokens_per_pass: float
    expected_tokens_per_pass: float


def overlap(target: Row, draft: Row) -> float:
    """α of one context: Σ min(p, q) = 1 − total variation."""
    return sum(map(min, target, draft))


def softmax(logits: Row, temperature: float = 1.0) -> tuple[float, ...]:
    """Probabilities of logits."""
    top = max(logits)
    weights = [math.exp((logit - top) / temperature) for logit in logits]
    total = sum(weights)
    return tuple(weight / total for weight in weights)


def random_logits(vocab_size: int, spread: float, draw: Draw) -> tuple[tuple[float, ...], ...]:
    """A table of normal logits with the given standard deviation (Box and Muller 1958)."""

    def normal() -> float:
        return math.sqrt(-2.0 * math.log(1.0 - draw())) * math.cos(2.0 * math.pi * draw())

    return tuple(tuple(spread * normal() for _ in range(vocab_size)) for _ in range(vocab_size))


def sample(probabilities: Row, draw: Draw) -> int:
    """A token, by inversion."""
    rest = draw() * math.fsum(probabilities)
    for token, probability in enumerate(probabilities):
        rest -= probability
        if rest < 0.0:
            return token
    return max(token for token, probability in enumerate(probabilities) if probability > 0.0)


def speculate(target: Table, draft: Table, last: int, num_drafts: int, draw: Draw) -> list[int]:
    """The tokens of one target pass after the token `last`: kept drafts, then a replacement or the bonus token."""
    tokens: list[int] = []
    for _ in range(num_drafts):
        p, q = target[last], draft[last]
        token = sample(q, draw)
        if draw() * q[token] >= p[token]:
            residual = [max(0.0, wanted - guessed) for wanted, guessed in zip(p, q, strict=True)]
            return [*tokens, sample(residual, draw)]
        tokens.append(token)
        last = token
    return [*tokens, sample(target[last], draw)]


def check_by_sampling(logits: Table, draft_temperature: float, num_drafts: int, num_passes: int, draw: Draw) -> Sampled:
    """Run passes one after the other and compare their yield with the closed form's."""
    target = [softmax(row) for row in logits]
    draft = [softmax(row, draft_temperature) for row in logits]
    overlaps = [overlap(p, q) for p, q in zip(target, draft, strict=True)]
    last, num_tokens, total_overlap = 0, 0, 0.0
    for _ in range(num_passes):
        tokens = speculate(target, draft, last, num_drafts, draw)
        total_overlap += sum(overlaps[context] for context in [last, *tokens[:-1]])
        num_tokens += len(tokens)
        last = tokens[-1]
    acceptance = total_overlap / num_tokens
    return Sampled(
        draft_temperature=draft_temperature,
        acceptance=acceptance,
        tokens_per_pass=num_tokens / num_passes,
        expected_tokens_per_pass=Speculation(acceptance, num_drafts, 0.0).tokens_per_pass,
    )
