"""Draws mean what the protocol says: order of filters, penalties (B017), statistics, no look at neighbours (B013)."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline.core.request import SamplingParams
from paceline.ops.protocol import SampleBatch, SampleResult
from paceline.ops.reference_sampling import adjusted, candidates, draw, log_softmax, sample_row, uniform

Values = NDArray[np.float64]
DEFAULTS: dict[str, Any] = {
    "token_rows": 0,
    "targets": -1,
    "slots": 0,
    "num_known": 3,
    "num_prompt": 3,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition": 1.0,
    "presence": 0.0,
    "frequency": 0.0,
    "seeds": 0,
    "num_top": 0,
}
FLOATS = {"temperature", "top_p", "min_p", "repetition", "presence", "frequency"}


def make_batch(*draws: dict[str, Any], histories: list[list[int]], bias: dict[int, float] | None = None) -> SampleBatch:
    """One entry a draw; `bias` goes to the first."""
    columns = {}
    for name, default in DEFAULTS.items():
        dtype = np.float32 if name in FLOATS else np.uint64 if name == "seeds" else np.int32
        columns[name] = np.array([entry.get(name, default) for entry in draws], dtype)
    bias = bias or {}
    return SampleBatch(
        **columns,
        bias_starts=np.array([0] + [len(bias)] * len(draws), np.int32),
        bias_ids=np.array(list(bias), np.int32),
        bias_values=np.array(list(bias.values()), np.float32),
        mask_rows=np.full(len(draws), -1, np.int32),
        masks=np.zeros((0, 1), np.uint32),
        histories=np.array(histories, np.int32),
    )


def one(logits: list[float], bias: dict[int, float] | None = None, **entry: Any) -> int:
    return draw(make_batch(entry, histories=[[0, 0, 0]], bias=bias), 0, np.array(logits))


def kept(logits: list[float], **entry: Any) -> list[int]:
    return candidates(make_batch(entry, histories=[[0] * 3]), 0, np.array(logits))[0].tolist()


PROBABILITIES = np.log([0.1, 0.4, 0.2, 0.05, 0.25]).tolist()  # best first: 1, 4, 2, 0, 3


def test_b017_penalties_count_the_right_tokens() -> None:
    """Prompt [1, 1, 2], generated [3, 3], every logit 1 but token 4's -1."""
    logits = np.array([1.0, 1.0, 1.0, 1.0, -1.0, 1.0])

    def penalized(history: list[int], **entry: Any) -> list[float]:
        return adjusted(make_batch({"num_known": len(history), **entry}, histories=[history]), 0, logits).tolist()

    history = [1, 1, 2, 3, 3]
    assert penalized(history, frequency=0.25) == [1.0, 1.0, 1.0, 0.5, -1.0, 1.0]
    assert penalized(history, presence=0.25) == [1.0, 1.0, 1.0, 0.75, -1.0, 1.0]
    assert penalized(history, repetition=2.0) == [1.0, 0.5, 0.5, 0.5, -1.0, 1.0]
    assert penalized([*history, 4], repetition=2.0) == [1.0, 0.5, 0.5, 0.5, -2.0, 1.0]


def test_the_filters_keep_what_they_say() -> None:
    assert kept(PROBABILITIES) == [0, 1, 2, 3, 4]
    assert kept(PROBABILITIES, top_k=5) == [1, 4, 2, 0, 3]
    assert kept(PROBABILITIES, top_k=2) == [1, 4]
    assert kept(PROBABILITIES, top_p=0.64) == [1, 4]
    assert kept(PROBABILITIES, top_p=0.66) == [1, 4, 2]
    assert kept(PROBABILITIES, top_p=1e-9) == [1]
    assert kept(PROBABILITIES, min_p=0.49) == [1, 4, 2]
    assert kept(PROBABILITIES, min_p=1.0) == [1]


def test_top_p_is_a_share_of_what_top_k_left() -> None:
    assert kept(PROBABILITIES, top_k=2, top_p=0.61) == [1]
    assert kept(PROBABILITIES, top_k=2, top_p=0.63) == [1, 4]


def test_ties_go_to_the_lower_id() -> None:
    assert kept([1.0, 2.0, 2.0, 1.0], top_k=3) == [1, 2, 0]
    assert one([1.0, 2.0, 2.0], temperature=0.0) == 1


def test_greedy_takes_the_best_after_bias() -> None:
    assert one([0.0, 3.0, 1.0], temperature=0.0) == 1
    assert one([0.0, 3.0, 1.0], temperature=0.0, bias={0: 5.0}) == 0
    assert one([0.0, 3.0, 1.0], temperature=0.0, bias={1: float("-inf")}) == 2


def test_all_forbidden_is_token_zero() -> None:
    assert one([1.0, 2.0], bias={0: float("-inf"), 1: float("-inf")}) == 0


def test_more_alternatives_than_tokens_are_all_of_them() -> None:
    batch = make_batch({"num_top": 5, "temperature": 0.0}, histories=[[0] * 3])
    result = SampleResult(
        np.zeros(1, np.int32), np.zeros(1, np.float32), np.full((1, 5), -1, np.int32), np.zeros((1, 5), np.float32)
    )
    sample_row(batch, 0, np.array([1.0, 2.0]), result)
    assert result.top_ids.tolist() == [[1, 0, -1, -1, -1]]


def test_a_forbidden_token_is_never_drawn() -> None:
    assert {one([5.0, 1.0, 1.0], bias={0: float("-inf")}, seeds=seed) for seed in range(200)} == {1, 2}


@pytest.mark.parametrize(("entry", "shares"), [
    ({}, [0.1, 0.4, 0.2, 0.05, 0.25]),
    ({"temperature": 0.5}, [0.01, 0.16, 0.04, 0.0025, 0.0625]),
    ({"top_k": 2}, [0.0, 0.4, 0.0, 0.0, 0.25]),
    ({"top_p": 0.8}, [0.0, 0.4, 0.2, 0.0, 0.25]),
])  # fmt: skip
def test_draws_follow_the_distribution(entry: dict[str, Any], shares: list[float]) -> None:
    """Chi-squared over 10,000 seeds; 4 degrees of freedom pass 24 with probability 10^-4, and seeds are fixed."""
    num_draws = 10_000
    histories = [[0] * 3]
    batch = make_batch(*({"seeds": seed, **entry} for seed in range(num_draws)), histories=histories)
    logits = np.array(PROBABILITIES)
    counts = np.bincount([draw(batch, index, logits) for index in range(num_draws)], minlength=5)
    expected = num_draws * np.array(shares) / sum(shares)
    assert counts[expected == 0.0].sum() == 0
    possible = expected > 0.0
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 24.0


def test_b013_a_draw_depends_on_seed_and_position_alone() -> None:
    logits = np.random.default_rng(0).normal(size=50)
    mine, other = {"seeds": 42, "num_known": 3}, {"seeds": 7, "temperature": 0.5, "slots": 1}
    histories = [[0] * 3, [1] * 3]
    alone = draw(make_batch(mine, histories=histories), 0, logits)
    assert draw(make_batch(other, other, mine, histories=histories), 2, logits) == alone


def test_numbers_are_philox() -> None:
    """Known answers of Philox4x32-10 from Random123 (kat_vectors): the first two words of each block."""
    ones = 0xFFFFFFFFFFFFFFFF
    assert uniform(0, 0) == (0x6627E8D5_E169C58D >> 11) * 2.0**-53
    assert 0.0 <= uniform(ones, ones) < 1.0


def test_choices_of_one_request_do_not_walk_the_same_sequence() -> None:
    """Their seeds differ by a fixed stride; no choice may repeat another's numbers, at any shift of positions."""
    parameters = SamplingParams(seed=42)
    sequences = [[uniform(parameters.for_choice(choice).seed, p) for p in range(500)] for choice in range(8)]
    assert len({number for sequence in sequences for number in sequence}) == 8 * 500
    means = np.mean(sequences, axis=1)
    assert np.all(np.abs(means - 0.5) < 4 * (1 / 12 / 500) ** 0.5)


def test_scores_are_of_the_raw_logits_and_the_best_come_first() -> None:
    logits = np.random.default_rng(0).normal(size=9)
    drawn = {"num_top": 3, "temperature": 0.0}
    scored = {"num_top": 1, "targets": 4, "temperature": 0.0, "repetition": 2.0}
    batch = make_batch(drawn, scored, histories=[[0] * 3], bias={8: 100.0})
    result = SampleResult(
        np.zeros(2, np.int32),
        np.zeros(2, np.float32),
        np.full((2, 3), -1, np.int32),
        np.full((2, 3), -np.inf, np.float32),
    )
    for index in range(2):
        sample_row(batch, index, logits, result)
    logprobs = log_softmax(logits).astype(np.float32)
    assert result.tokens.tolist() == [8, 4]
    assert result.logprobs.tolist() == [logprobs[8], logprobs[4]]
    best = np.argsort(-logits)[:3].tolist()
    assert result.top_ids.tolist() == [best, [best[0], -1, -1]]
    assert result.top_logprobs[0].tolist() == logprobs[best].tolist()
    assert result.top_logprobs[1].tolist() == [logprobs[best[0]], -np.inf, -np.inf]
    assert np.isclose(np.exp(log_softmax(logits)).sum(), 1.0)
