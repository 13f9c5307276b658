"""How the reference backend draws a token: the meaning of `SampleBatch`, one row at a time.

Order: bias, penalties, temperature, top-k, top-p, min-p; logprobs are of the raw logits. A draw is a function of
(seed, position): `uniform` hashes the pair, and the candidates, best first (ties: lower id first), are walked until
their cumulative weight exceeds it. Other backends may walk in another order; the distribution is the same.
"""

import numpy as np
from numpy.typing import NDArray

from paceline.ops.protocol import SampleBatch, SampleResult

Values = NDArray[np.float64]
MASK = (1 << 64) - 1


def sample_row(batch: SampleBatch, index: int, logits: Values, result: SampleResult) -> None:
    """Draw or score entry `index` from its raw logits [V] and write its part of `result`."""
    logprobs = log_softmax(logits)
    target = int(batch.targets[index])
    token = draw(batch, index, logits) if target < 0 else target
    result.tokens[index] = token
    result.logprobs[index] = logprobs[token]
    num_top = int(batch.num_top[index])
    best = _best_first(logprobs)[:num_top]
    result.top_ids[index, :num_top] = best
    result.top_logprobs[index, :num_top] = logprobs[best]


def draw(batch: SampleBatch, index: int, raw_logits: Values) -> int:
    """The token entry `index` draws."""
    logits = adjusted(batch, index, raw_logits)
    temperature = float(batch.temperature[index])
    if temperature == 0.0:
        return int(np.argmax(logits))
    order, weights = candidates(batch, index, logits / temperature)
    point = uniform(int(batch.seeds[index]), int(batch.num_known[index])) * weights.sum()
    place = int(np.searchsorted(np.cumsum(weights), point, side="right"))
    return int(order[min(place, len(order) - 1)])


def adjusted(batch: SampleBatch, index: int, raw_logits: Values) -> Values:
    """Logits after bias and penalties. Repetition counts prompt and output, presence and frequency output only."""
    logits = raw_logits.copy()
    biased = slice(batch.bias_starts[index], batch.bias_starts[index + 1])
    np.add.at(logits, batch.bias_ids[biased], batch.bias_values[biased].astype(np.float64))
    known = batch.histories[batch.slots[index], : batch.num_known[index]]
    outputs = known[batch.num_prompt[index] :]
    seen = np.unique(known)
    repetition = float(batch.repetition[index])
    logits[seen] = np.where(logits[seen] > 0.0, logits[seen] / repetition, logits[seen] * repetition)
    ids, counts = np.unique(outputs, return_counts=True)
    logits[ids] -= float(batch.frequency[index]) * counts + float(batch.presence[index])
    return logits


def candidates(batch: SampleBatch, index: int, logits: Values) -> tuple[NDArray[np.intp], Values]:
    """Token ids that may be drawn, best first, and their weights (the best one's is 1).

    top-p keeps the fewest of the top-k whose share of those reaches p; min-p those that weigh at least that.
    """
    order = _best_first(logits)
    top_k = int(batch.top_k[index])
    if top_k > 0:
        order = order[:top_k]
    weights = np.exp(logits[order] - logits[order[0]])
    top_p = float(batch.top_p[index])
    if top_p < 1.0:
        reached = np.cumsum(weights) >= top_p * weights.sum()
        kept = int(np.argmax(reached)) + 1
        order, weights = order[:kept], weights[:kept]
    allowed = (weights >= float(batch.min_p[index])) & (weights > 0.0)
    return order[allowed], weights[allowed]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1): step `position` of splitmix64 (Steele et al. 2014) from a start that is a hash of the seed.

    The start is hashed because seeds that differ by a multiple of the step (the choices of one request do) would
    otherwise walk the same sequence, some positions apart.
    """
    return (_mixed(_mixed(seed) + (position + 1) * 0x9E3779B97F4A7C15) >> 11) * 2.0**-53


def _mixed(state: int) -> int:
    state &= MASK
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & MASK
    return state ^ state >> 31


def log_softmax(logits: Values) -> Values:
    """Natural log probabilities."""
    shifted = logits - logits.max()
    logprobs: Values = shifted - np.log(np.exp(shifted).sum())
    return logprobs


def _best_first(scores: Values) -> NDArray[np.intp]:
    return np.argsort(-scores, kind="stable")
