"""The fit finds the law behind measured steps, and says how far off it is."""

from dataclasses import replace
from random import Random

import pytest

from paceline.costs.fit import error_of, fit_step_time
from paceline.costs.fitted import FittedStepTime
from paceline.costs.step import StepWork, decode_work, prefill_work
from paceline.errors import ConfigError

# About what two CPU cores do with a small model: overhead 0.4 ms, weights 5.1 ms, the ridge at 8 tokens.
TRUE = FittedStepTime(4e-4, 6.4e-4, 8.0, 4e-7, 1.5e-8, 8e-5)


def mixed_steps(num_steps: int, seed: int = 5) -> list[StepWork]:
    """Decode batches with chunks of prompts among them, as an engine runs them."""
    random = Random(seed)
    steps = []
    for _ in range(num_steps):
        step = decode_work(random.randint(1, 24), random.randint(10, 1500))
        if random.random() < 0.4:
            chunk = prefill_work(1, random.randint(1, 256), random.randint(0, 1000))
            step = replace(
                step,
                num_prefill_tokens=chunk.num_prefill_tokens,
                num_prefill_rows=1,
                context_tokens=step.context_tokens + chunk.context_tokens,
                attended_pairs=step.attended_pairs + chunk.attended_pairs,
            )
        steps.append(step)
    return steps


def test_the_fit_recovers_the_law_it_was_given() -> None:
    samples = [(work, TRUE.step_s(work)) for work in mixed_steps(200)]
    law, error = fit_step_time(samples)
    assert error.largest < 1e-6
    assert law.ridge_tokens == pytest.approx(8.0)
    assert law.weights_s == pytest.approx(TRUE.weights_s, rel=1e-3)
    assert law.overhead_s == pytest.approx(TRUE.overhead_s, rel=1e-3)
    assert law.context_token_s == pytest.approx(TRUE.context_token_s, rel=1e-3)
    assert law.pair_s == pytest.approx(TRUE.pair_s, rel=1e-3)
    assert law.sampled_s == pytest.approx(TRUE.sampled_s, rel=1e-3)


def test_noise_shows_in_the_reported_error_and_hardly_in_the_law() -> None:
    random = Random(9)
    samples = [(work, TRUE.step_s(work) * (1.0 + 0.1 * (random.random() - 0.5))) for work in mixed_steps(300)]
    law, error = fit_step_time(samples)
    assert 0.01 < error.median < 0.05
    assert error.median < error.p90 < error.largest < 0.15
    assert error.bias == pytest.approx(1.0, abs=0.02)
    unseen = [(work, TRUE.step_s(work)) for work in mixed_steps(100, seed=6)]
    assert error_of(law, unseen).p90 < 0.03


def test_no_term_is_negative_even_where_least_squares_would_have_it_so() -> None:
    random = Random(2)
    samples = [(work, 0.01 * (1.0 + random.random())) for work in mixed_steps(60)]
    law, error = fit_step_time(samples)
    assert min(law.overhead_s, law.token_s, law.context_token_s, law.pair_s, law.sampled_s) >= 0.0
    assert error.median > 0.1


def test_too_few_steps_and_times_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 20 measured steps, got 19"):
        fit_step_time([(work, 0.01) for work in mixed_steps(19)])
    with pytest.raises(ConfigError, match="positive time"):
        fit_step_time([(work, 0.0) for work in mixed_steps(30)])
    with pytest.raises(ConfigError, match="every term must be a number from 0"):
        FittedStepTime(-1e-3, 1e-4, 8.0, 0.0, 0.0, 0.0)
