"""How the reference backend draws a token: the meaning of `SampleBatch`, one row at a time.

Order: mask, bias, penalties, temperature, top-k, top-p, min-p; logprobs are of the raw logits. A draw is a function of
(seed, position): `uniform` turns the pair into a number, and the candidates are walked until their cumulative weight
exceeds it: best first (ties: lower id first) where a filter sorted them, by ascending id where none did.
"""

import numpy as np
from numpy.typing import NDArray

from paceline.ops.protocol import SampleBatch, SampleResult

Values = NDArray[np.float64]
WORD = (1 << 32) - 1


def sample_row(batch: SampleBatch, index: int, logits: Values, result: SampleResult) -> None:
    """Draw or score entry `index` from its raw logits [V] and write its part of `result`."""
    logprobs = log_softmax(logits)
    target = int(batch.targets[index])
    token = draw(batch, index, logits) if target < 0 else target
    result.tokens[index] = token
    result.logprobs[index] = logprobs[token]
    best = _best_first(logprobs)[: int(batch.num_top[index])]
    result.top_ids[index, : len(best)] = best
    result.top_logprobs[index, : len(best)] = logprobs[best]


def draw(batch: SampleBatch, index: int, raw_logits: Values) -> int:
    """The token entry `index` draws."""
    logits = adjusted(batch, index, raw_logits)
    temperature = float(batch.temperature[index])
    if temperature == 0.0 or logits.max() == -np.inf:
        return int(np.argmax(logits))
    order, weights = candidates(batch, index, logits / temperature)
    point = uniform(int(batch.seeds[index]), int(batch.num_known[index])) * weights.sum()
    place = int(np.searchsorted(np.cumsum(weights), point, side="right"))
    return int(order[min(place, len(order) - 1)])


def adjusted(batch: SampleBatch, index: int, raw_logits: Values) -> Values:
    """Logits after mask, bias and penalties. Repetition counts prompt and output, the other penalties output only."""
    logits = raw_logits.copy()
    if batch.mask_rows[index] >= 0:
        logits[~allowed_tokens(batch.masks[batch.mask_rows[index]], len(logits))] = -np.inf
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


def allowed_tokens(mask: NDArray[np.uint32], vocab_size: int) -> NDArray[np.bool_]:
    """One truth value a token: bit t of word w is token 32w + t, whatever the machine's byte order."""
    bits = mask[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)
    allowed: NDArray[np.bool_] = bits.ravel()[:vocab_size] != 0
    return allowed


def candidates(batch: SampleBatch, index: int, logits: Values) -> tuple[NDArray[np.intp], Values]:
    """Token ids that may be drawn, in the order they are walked, and their weights (the best one's is 1).

    top-p keeps the fewest of the top-k whose share of those reaches p; min-p those that weigh at least that.
    """
    top_k, top_p, min_p = int(batch.top_k[index]), float(batch.top_p[index]), float(batch.min_p[index])
    is_filtered = top_k > 0 or top_p < 1.0 or min_p > 0.0
    order = _best_first(logits) if is_filtered else np.arange(len(logits))
    if top_k > 0:
        order = order[:top_k]
    weights = np.exp(logits[order] - logits.max())
    if top_p < 1.0:
        reached = np.cumsum(weights) >= top_p * weights.sum()
        kept = int(np.argmax(reached)) + 1
        order, weights = order[:kept], weights[:kept]
    allowed = (weights >= min_p) & (weights > 0.0)
    return order[allowed], weights[allowed]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1): Philox4x32-10 (Salmon et al. 2011) with the seed as key and the position as counter.

    A keyed function rather than steps from a seeded start: the choices of one request have seeds a fixed stride apart,
    and must not walk one sequence some positions apart.
    """
    key_low, key_high = seed & WORD, seed >> 32
    counter = [position & WORD, position >> 32, 0, 0]
    for _ in range(10):
        even, odd = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [odd >> 32 ^ counter[1] ^ key_low, odd & WORD, even >> 32 ^ counter[3] ^ key_high, even & WORD]
        key_low, key_high = key_low + 0x9E3779B9 & WORD, key_high + 0xBB67AE85 & WORD
    return ((counter[0] << 32 | counter[1]) >> 11) * 2.0**-53


def log_softmax(logits: Values) -> Values:
    """Natural log probabilities."""
    shifted = logits - logits.max()
    logprobs: Values = shifted - np.log(np.exp(shifted).sum())
    return logprobs


def _best_first(scores: Values) -> NDArray[np.intp]:
    return np.argsort(-scores, kind="stable")
