"""The native sampler: the order of its steps, its probabilities, its log-probabilities, and broken logits."""

import numpy as np
import pytest
from numpy.typing import NDArray
from op_models import cpu_backend, int32, logits_session, same_bits, sample_batch

from paceline.ops.cpu import INSTRUCTION_SETS, CpuBackend
from paceline.ops.protocol import SampleBatch, SampleResult
from paceline.ops.reference import ReferenceBackend
from paceline.ops.reference_sampling import candidates

RNG = np.random.default_rng(2)
NUM_DRAWS = 20_000


@pytest.fixture(params=INSTRUCTION_SETS)
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return cpu_backend(request.param, 2)


def log_softmax(logits: NDArray[np.floating]) -> NDArray[np.float64]:
    shifted = np.asarray(logits, np.float32).astype(np.float64)
    shifted = shifted - shifted.max()
    return shifted - np.log(np.exp(shifted).sum())


def sample(backend: CpuBackend, logits: NDArray[np.floating], batch: SampleBatch) -> SampleResult:
    return logits_session(backend, logits).sample(batch)


# B017: six tokens, prompt [1, 1, 2], output [3, 3], all logits 1 but that of token 4, -1.
B017 = {"histories": [[1, 1, 2, 3, 3]], "num_known": 5, "num_prompt": 3}
B017_LOGITS = np.array([1, 1, 1, 1, -1, 1], np.float64)


def adjusted_logits(backend: CpuBackend, logits: NDArray[np.floating], **fields: object) -> NDArray[np.float64]:
    """What the penalties made of the logits, seen from outside: of two allowed tokens, greedy takes the one with the
    larger adjusted logit. Found by bisection over a bias of token 0, which no history here contains."""
    session = logits_session(backend, logits)
    found = []
    for token in range(1, len(logits)):
        low, high = -8.0, 8.0
        for _ in range(30):
            middle = (low + high) / 2
            others = {other: -np.inf for other in range(1, len(logits)) if other != token}
            result = session.sample(sample_batch([0], bias=[{0: middle, **others}], **fields))
            low, high = (middle, high) if result.tokens[0] == token else (low, middle)
        found.append(low + logits[0])
    return np.array([logits[0], *found])


def test_b017_presence_and_frequency_count_outputs_only(backend: CpuBackend) -> None:
    ours = adjusted_logits(backend, B017_LOGITS, frequency=0.7, **B017)
    assert np.allclose(ours, [1, 1, 1, 1 - 2 * 0.7, -1, 1], atol=1e-5)
    ours = adjusted_logits(backend, B017_LOGITS, presence=1.25, **B017)
    assert np.allclose(ours, [1, 1, 1, 1 - 1.25, -1, 1], atol=1e-5)


def test_b017_repetition_counts_prompt_and_output_once(backend: CpuBackend) -> None:
    ours = adjusted_logits(backend, B017_LOGITS, repetition=1.3, **B017)
    assert np.allclose(ours, [1, 1 / 1.3, 1 / 1.3, 1 / 1.3, -1, 1], atol=1e-5)


def test_b017_repetition_multiplies_a_seen_negative_logit(backend: CpuBackend) -> None:
    seen = {**B017, "histories": [[1, 1, 2, 4, 4]]}
    ours = adjusted_logits(backend, B017_LOGITS, repetition=1.3, **seen)
    assert np.allclose(ours, [1, 1 / 1.3, 1 / 1.3, 1, -1.3, 1], atol=1e-5)


def test_penalties_leave_nothing_behind_for_other_rows(backend: CpuBackend) -> None:
    logits = np.tile(B017_LOGITS, (40, 1))
    session = logits_session(backend, logits)
    plain = sample_batch(range(40), num_known=5, num_prompt=3, histories=[[1, 1, 2, 3, 3]])
    before = session.sample(plain)
    session.sample(sample_batch(range(40), repetition=1.3, presence=1.0, **B017))
    assert np.array_equal(session.sample(plain).tokens, before.tokens)


DISTRIBUTIONS = {
    "plain": {"temperature": 1.0},
    "cool": {"temperature": 0.5},
    "top_k": {"temperature": 1.0, "top_k": 5},
    "top_p": {"temperature": 1.3, "top_p": 0.6},
    "min_p": {"temperature": 0.9, "min_p": 0.2},
    "all": {"temperature": 1.5, "top_k": 12, "top_p": 0.8, "min_p": 0.15},
    "top_k of all": {"temperature": 1.0, "top_k": 40, "top_p": 0.95},
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_draws_follow_the_reference_distribution(backend: CpuBackend, name: str) -> None:
    logits = RNG.normal(scale=1.5, size=40)
    fields = DISTRIBUTIONS[name]
    batch = sample_batch([0] * NUM_DRAWS, seeds=np.arange(NUM_DRAWS) * 0x9E3779B9, num_known=6, **fields)
    drawn = np.bincount(sample(backend, logits, batch).tokens, minlength=40)
    kept, weights = candidates(batch, 0, np.float32(logits).astype(np.float64) / float(batch.temperature[0]))
    expected = np.zeros(40)
    expected[kept] = weights / weights.sum() * NUM_DRAWS
    assert drawn[expected == 0].sum() == 0
    usual = expected >= 5
    chi_square = ((drawn - expected)[usual] ** 2 / expected[usual]).sum()
    degrees = max(usual.sum() - 1, 1)
    # Mean plus five standard deviations of the chi-square distribution; seeds are fixed, so the outcome is too.
    assert chi_square <= degrees + 5 * np.sqrt(2 * degrees)


def test_draws_at_successive_positions_follow_the_distribution_too(backend: CpuBackend) -> None:
    batch = sample_batch([0] * 4000, temperature=1.0, seeds=5, num_known=np.arange(4000), histories=np.zeros((1, 4000)))
    drawn = np.bincount(sample(backend, np.log([0.5, 0.25, 0.125, 0.125]), batch).tokens, minlength=4)
    assert np.abs(drawn / 4000 - [0.5, 0.25, 0.125, 0.125]).max() < 0.04


def test_a_draw_is_a_function_of_seed_and_position(backend: CpuBackend) -> None:
    logits = RNG.normal(size=(2, 500))
    session = logits_session(backend, np.stack([logits[0]] * 8))
    histories = np.zeros((1, 100))
    fields = {"temperature": 1.0, "histories": histories}
    same = session.sample(sample_batch(range(8), seeds=9, num_known=4, **fields)).tokens
    assert len(set(same.tolist())) == 1
    by_seed = session.sample(sample_batch(range(8), seeds=np.arange(8), num_known=4, **fields)).tokens
    by_position = session.sample(sample_batch(range(8), seeds=9, num_known=np.arange(8), **fields)).tokens
    assert len(set(by_seed.tolist())) > 4
    assert len(set(by_position.tolist())) > 4
    assert by_position[4] == same[0]


def test_a_large_vocabulary_is_drawn_by_the_nucleus(backend: CpuBackend) -> None:
    logits = RNG.normal(scale=2.0, size=49152)
    for fields in ({"top_p": 0.9}, {"top_k": 50}, {"min_p": 0.05}, {"top_p": 0.5, "min_p": 0.01}):
        batch = sample_batch([0] * 500, temperature=1.0, seeds=np.arange(500), **fields)
        kept, _ = candidates(batch, 0, np.float32(logits).astype(np.float64))
        drawn = sample(backend, logits, batch).tokens
        assert set(drawn.tolist()) <= set(kept.tolist())


def test_greedy_takes_the_first_of_equal_logits(backend: CpuBackend) -> None:
    logits = np.zeros(1000)
    logits[[70, 71, 900]] = 2.0
    assert sample(backend, logits, sample_batch([0])).tokens[0] == 70
    forbidden = sample_batch([0], bias=[{70: -np.inf}])
    assert sample(backend, logits, forbidden).tokens[0] == 71


def random_mask(vocab_size: int, share: float) -> NDArray[np.uint32]:
    """One bit a token, `share` of them set; bits past the vocabulary are set too, and must not matter."""
    allowed = np.ones((vocab_size + 31) // 32 * 32, bool)
    allowed[:vocab_size] = RNG.random(vocab_size) < share
    return np.packbits(allowed, bitorder="little").view("<u4").astype(np.uint32)


@pytest.mark.parametrize("vocab_size", [31, 32, 2000, 2001])
def test_masked_draws_equal_the_reference_backend_and_never_leave_the_mask(
    backend: CpuBackend, vocab_size: int
) -> None:
    """Words all ones, all zeros and mixed; settings that sort, filter and walk; rows without a mask in between."""
    logits = RNG.normal(scale=2.0, size=(60, vocab_size))
    masks = np.stack([random_mask(vocab_size, share) for share in (0.05, 0.5, 0.97)])
    masks[0, 0], masks[1, 0] = 1, 0xFFFF_FFFF
    mask_rows = np.arange(60) % 4 - 1
    for fields in ({}, {"temperature": 1.0}, {"temperature": 0.8, "top_p": 0.9, "top_k": 20}, {"repetition": 1.5}):
        batch = sample_batch(range(60), mask_rows=mask_rows, masks=masks, seeds=np.arange(60), num_known=5, num_top=2,
                             histories=[[1, 2, 3, 4, 5]], **fields)  # fmt: skip
        ours = sample(backend, logits, batch)
        expected = logits_session(ReferenceBackend(), logits).sample(batch)
        assert np.array_equal(ours.tokens, expected.tokens)
        assert np.array_equal(ours.top_ids, expected.top_ids)
        assert np.abs(ours.logprobs - expected.logprobs).max() < 1e-5
        for mask_row, token in zip(mask_rows.tolist(), ours.tokens.tolist(), strict=True):
            assert mask_row < 0 or masks[mask_row, token // 32] >> (token % 32) & 1


def test_a_bias_can_not_lift_a_token_over_the_mask(backend: CpuBackend) -> None:
    batch = sample_batch([0], bias=[{7: 100.0, 3: 5.0}], mask_rows=0, masks=[[1 << 3 | 1 << 4]])
    result = sample(backend, np.zeros(10), batch)
    assert result.tokens[0] == 3
    assert abs(result.logprobs[0] + np.log(10)) < 1e-6  # the logprob is of the raw logits


def test_masks_that_do_not_fit_are_refused(backend: CpuBackend) -> None:
    for mask_rows, masks, complaint in ((0, np.zeros((0, 1)), "mask_rows"), (0, np.ones((1, 2)), "words of a mask"),
                                        (-2, np.ones((1, 1)), "mask_rows")):  # fmt: skip
        with pytest.raises(ValueError, match=complaint):
            sample(backend, np.zeros(10), sample_batch([0], mask_rows=mask_rows, masks=masks))


def test_logprobs_are_of_the_raw_logits(backend: CpuBackend) -> None:
    logits = RNG.normal(scale=4.0, size=49152)
    expected = log_softmax(logits)
    batch = sample_batch([0], temperature=0.3, top_k=3, bias=[{17: 60.0}], num_top=6)
    result = sample(backend, logits, batch)
    assert result.tokens[0] == 17
    assert abs(result.logprobs[0] - expected[17]) < 1e-5
    best = np.argsort(-expected, kind="stable")[:6]
    assert result.top_ids[0].tolist() == best.tolist()
    assert np.abs(result.top_logprobs[0] - expected[best]).max() < 1e-5


def test_alternatives_with_equal_logits_rank_by_id(backend: CpuBackend) -> None:
    logits = np.zeros(300)
    logits[[250, 3, 100]] = 1.0
    result = sample(backend, logits, sample_batch([0, 0], num_top=[5, 2]))
    assert result.top_ids[0].tolist() == [3, 100, 250, 0, 1]
    assert result.top_ids[1].tolist() == [3, 100, -1, -1, -1]
    assert np.all(np.isneginf(result.top_logprobs[1, 2:]))


def test_targets_are_scored(backend: CpuBackend) -> None:
    logits = RNG.normal(size=(150, 64))
    targets = RNG.integers(0, 64, 150)
    result = sample(backend, logits, sample_batch(range(150), targets=targets, temperature=1.0, num_top=1))
    expected = np.array([log_softmax(row)[target] for row, target in zip(logits, targets, strict=True)])
    assert np.array_equal(result.tokens, targets)
    assert np.abs(result.logprobs - expected).max() < 1e-5
    assert np.array_equal(result.top_ids[:, 0], np.float32(logits).argmax(axis=1))


def test_greedy_draws_and_scores_equal_the_reference_backend(backend: CpuBackend) -> None:
    logits = RNG.normal(scale=3.0, size=(70, 2000))
    batch = sample_batch(range(70), presence=0.5, repetition=1.2, num_known=8, num_prompt=3, num_top=4,
                         histories=[[5, 6, 7, 8, 5, 9, 9, 1]])  # fmt: skip
    ours = sample(backend, logits, batch)
    expected = logits_session(ReferenceBackend(), logits).sample(batch)
    assert np.array_equal(ours.tokens, expected.tokens)
    assert np.array_equal(ours.top_ids, expected.top_ids)
    assert np.abs(ours.logprobs - expected.logprobs).max() < 1e-5


@pytest.mark.parametrize("num_tokens", [6, 64, 1500])
def test_broken_logits_give_a_defined_token(backend: CpuBackend, num_tokens: int) -> None:
    logits = RNG.normal(size=(6, num_tokens))
    logits[0] = -np.inf
    logits[1] = np.nan
    logits[2, ::2] = np.nan
    logits[3, 2] = np.inf
    logits[4, 1:] = -np.inf
    logits[5] = np.inf
    # The embedding table is read as stored, so NaN and infinity arrive.
    for fields in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}, {"temperature": 1e-30, "top_k": 3}):
        result = sample(backend, logits, sample_batch(range(6), num_top=2, seeds=np.arange(6), **fields))
        assert np.all((result.tokens >= 0) & (result.tokens < num_tokens))
        assert result.tokens[2] % 2 == 1
        assert result.tokens[3] == 2
        assert result.tokens[4] == 0
        assert result.logprobs[4] == 0.0
        assert not np.any(np.isnan(result.logprobs))


def test_everything_forbidden_gives_a_token_and_minus_infinity_is_its_logprob(backend: CpuBackend) -> None:
    batch = sample_batch([0], temperature=1.0, bias=[dict.fromkeys(range(5), -np.inf)])
    assert sample(backend, np.full(5, -np.inf), batch).logprobs[0] == -np.inf


def test_more_rows_than_a_tile_equal_their_single_runs(backend: CpuBackend) -> None:
    logits = RNG.normal(size=(150, 257))
    session = logits_session(backend, logits)
    whole = session.sample(sample_batch(range(150), temperature=1.0, seeds=np.arange(150)))
    again = session.sample(sample_batch([149], temperature=1.0, seeds=149))
    assert whole.tokens[149] == again.tokens[0]
    assert same_bits(whole.logprobs[149:], again.logprobs)
    assert same_bits(session.logits(int32([3, 149])), np.float32(logits)[[3, 149]])
