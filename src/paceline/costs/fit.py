"""Fits the step time to measured steps: non-negative least squares of relative errors, and its error on steps held out.

The only file of this room that uses NumPy. Relative, because a decode step of 5 ms matters to a stream as much as a
prefill of 500 ms does to its prompt. With five coefficients every set of those that may be positive is tried, which
is exact and needs no solver; the ridge, where the law bends, is searched over a grid.
"""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import numpy as np
from numpy.typing import NDArray

from paceline.costs.fitted import FitError, FittedStepTime
from paceline.costs.step import StepTime, StepWork
from paceline.errors import ConfigError

Sample = tuple[StepWork, float]
Floats = NDArray[np.float64]

NUM_TERMS = 5
MIN_SAMPLES = 4 * NUM_TERMS
NUM_FOLDS = 5
RIDGES = (0.0, *(2.0 ** (power / 4) for power in range(49)))
SUBSETS = tuple(chain.from_iterable(combinations(range(NUM_TERMS), size) for size in range(1, NUM_TERMS + 1)))


def fit_step_time(samples: Sequence[Sample]) -> tuple[FittedStepTime, FitError]:
    """The law of all samples, and the error of laws of the same kind, each on the fifth that it did not see.

    Raises ConfigError for fewer than MIN_SAMPLES samples or a time that is not positive.
    """
    if len(samples) < MIN_SAMPLES:
        raise ConfigError(f"a fit needs at least {MIN_SAMPLES} measured steps, got {len(samples)}")
    if not all(0.0 < seconds < float("inf") for _, seconds in samples):
        raise ConfigError("a measured step must have a positive time")
    errors = []
    for fold in range(NUM_FOLDS):
        law = _fit([sample for index, sample in enumerate(samples) if index % NUM_FOLDS != fold])
        errors.append(_relative_errors(law, samples[fold::NUM_FOLDS]))
    law = _fit(samples)
    return law, _fit_error(np.concatenate(errors), law, samples)


def error_of(law: StepTime, samples: Sequence[Sample]) -> FitError:
    """How far any law is from measured steps."""
    return _fit_error(_relative_errors(law, samples), law, samples)


def _fit_error(errors: Floats, law: StepTime, samples: Sequence[Sample]) -> FitError:
    return FitError(
        num_steps=len(samples),
        median=float(np.median(errors)),
        p90=float(np.quantile(errors, 0.9)),
        largest=float(errors.max()),
        bias=sum(law.step_s(work) for work, _ in samples) / sum(seconds for _, seconds in samples),
    )


def _relative_errors(law: StepTime, samples: Iterable[Sample]) -> Floats:
    return np.array([abs(law.step_s(work) - seconds) / seconds for work, seconds in samples])


def _fit(samples: Sequence[Sample]) -> FittedStepTime:
    """The best of the fits with each ridge on the grid."""
    works = [work for work, _ in samples]
    times = np.array([seconds for _, seconds in samples])
    num_tokens = np.array([work.num_tokens for work in works], dtype=np.float64)
    columns = np.array(
        [(1.0, 0.0, work.context_tokens, work.attended_pairs, work.num_sampled) for work in works], dtype=np.float64
    )
    best_loss, best = float("inf"), (0.0, np.zeros(NUM_TERMS))
    for ridge in RIDGES:
        columns[:, 1] = np.maximum(num_tokens, ridge)
        loss, terms = _non_negative(columns / times[:, None])
        # A later bend has to explain more: above the largest step seen, any ridge fits alike.
        if loss < best_loss * (1.0 - 1e-9):
            best_loss, best = loss, (ridge, terms)
    ridge, terms = best
    overhead_s, token_s, context_token_s, pair_s, sampled_s = map(float, terms)
    return FittedStepTime(overhead_s, token_s, ridge, context_token_s, pair_s, sampled_s)


def _non_negative(columns: Floats) -> tuple[float, Floats]:
    """(loss, terms ≥ 0) that bring columns @ terms nearest to 1: the least squares of each set of terms, the best that
    is non-negative. Columns are scaled first: seconds a pair and seconds a step differ by ten powers of ten.
    """
    scale = columns.max(axis=0)
    scale[scale == 0.0] = 1.0
    scaled = columns / scale
    gram, target = scaled.T @ scaled, scaled.sum(axis=0)
    best_loss, best = float("inf"), np.zeros(NUM_TERMS)
    for subset in SUBSETS:
        chosen = list(subset)
        part = np.linalg.lstsq(gram[np.ix_(chosen, chosen)], target[chosen], rcond=None)[0]
        if (part < 0.0).any():
            continue
        terms = np.zeros(NUM_TERMS)
        terms[chosen] = part
        loss = float(np.square(scaled @ terms - 1.0).sum())
        if loss < best_loss:
            best_loss, best = loss, terms
    return best_loss, best / scale
