"""Speculation in closed form, against its published figures and against sampling on bigram models."""

from collections import Counter
from random import Random

import pytest

from paceline.costs.bigram import check_by_sampling, overlap, random_logits, sample, softmax, speculate
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.hardware import find_hardware
from paceline.costs.known_models import find_model
from paceline.costs.speculation import Speculation, best_at, best_speculation, last_paying_batch
from paceline.errors import ConfigError

NODE = DatasheetEstimator(find_model("llama-3-70b"), find_hardware("H100"), num_cards=8)


@pytest.mark.parametrize(("acceptance", "num_drafts", "cost", "speed_up"), [(0.8, 5, 0.1, 2.5), (0.6, 5, 0.2, 1.2)])
def test_speed_up(acceptance: float, num_drafts: int, cost: float, speed_up: float) -> None:
    assert Speculation(acceptance, num_drafts, cost).speed_up == pytest.approx(speed_up, abs=0.05)


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.941, 4.44), (0.889, 4.01), (0.829, 3.56), (0.721, 2.89)])
def test_tokens_of_a_pass_with_four_drafts(acceptance: float, tokens: float) -> None:
    assert Speculation(acceptance, 4, 0.0).tokens_per_pass == pytest.approx(tokens, abs=0.005)


@pytest.mark.parametrize(("acceptance", "num_drafts", "speed_up"), [(0.9, 8, 2.785), (0.7, 3, 1.75), (0.5, 2, 1.35)])
def test_the_best_number_of_drafts(acceptance: float, num_drafts: int, speed_up: float) -> None:
    best = best_speculation(acceptance, 0.15)
    assert best.num_drafts == num_drafts
    assert best.speed_up == pytest.approx(speed_up, abs=0.005)


def test_the_best_is_flat_from_6_to_10() -> None:
    best = best_speculation(0.9, 0.15).speed_up
    assert all(Speculation(0.9, num_drafts, 0.15).speed_up > 0.985 * best for num_drafts in range(6, 11))
    assert Speculation(0.9, 5, 0.15).speed_up < 0.985 * best


def test_drafts_that_are_always_or_never_kept() -> None:
    assert Speculation(1.0, 4, 0.0).tokens_per_pass == 5.0
    assert Speculation(0.0, 4, 0.0).tokens_per_pass == 1.0
    assert best_speculation(0.05, 0.5).num_drafts == 0
    with pytest.raises(ConfigError, match=r"acceptance rate must be from 0 to 1, got 1\.5"):
        Speculation(1.5, 4, 0.1)


@pytest.mark.parametrize("temperature", [0.7, 1.3, 1.6, 2.0])
def test_sampling_yields_what_the_closed_form_says(temperature: float) -> None:
    random = Random(7)
    found = check_by_sampling(random_logits(24, 1.5, random.random), temperature, 4, 3_000, random.random)
    assert 0.6 < found.acceptance < 0.97
    assert found.tokens_per_pass == pytest.approx(found.expected_tokens_per_pass, rel=0.03)


def test_output_is_distributed_as_the_target_at_the_first_and_the_second_token() -> None:
    random = Random(11)
    logits = random_logits(6, 1.2, random.random)
    target = [softmax(row) for row in logits]
    draft = [softmax(row, 2.5) for row in logits]
    first, second = Counter[int](), Counter[int]()
    likeliest = max(range(6), key=lambda token: target[0][token])
    for _ in range(20_000):
        tokens = speculate(target, draft, 0, 2, random.random)
        if len(tokens) == 1:  # the next pass gives the second token
            tokens += speculate(target, draft, tokens[0], 2, random.random)
        first[tokens[0]] += 1
        if tokens[0] == likeliest:
            second[tokens[1]] += 1
    assert _distance(first, target[0]) < 0.02
    assert _distance(second, target[likeliest]) < 0.02
    # The draft's own distribution is far away: the check can fail.
    assert 1.0 - overlap(target[0], draft[0]) > 0.1


def _distance(counts: Counter[int], probabilities: tuple[float, ...]) -> float:
    total = counts.total()
    return sum(abs(counts[token] / total - p) for token, p in enumerate(probabilities)) / 2


def test_a_token_without_probability_is_never_drawn() -> None:
    random = Random(3)
    assert {sample((0.0, 0.5, 0.0, 0.5, 0.0), random.random) for _ in range(200)} == {1, 3}


def test_at_large_batch_speculation_loses_and_switches_itself_off() -> None:
    drafting = Speculation(0.7, 3, 0.1)
    alone = drafting.speed_up_at(NODE, 1, 1_000)
    assert alone == pytest.approx(drafting.speed_up, rel=0.02)
    last = last_paying_batch(drafting, NODE, 16)
    assert last is not None
    assert drafting.speed_up_at(NODE, last, 16) > 1.0 >= drafting.speed_up_at(NODE, last + 1, 16)
    assert best_at(NODE, 0.7, 0.1, 20 * last, 16).num_drafts == 0
    # Long contexts keep the step waiting for KV: there drafting goes on paying.
    assert last_paying_batch(drafting, NODE, 32_768) is None
