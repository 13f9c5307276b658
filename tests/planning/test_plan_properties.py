"""What holds for any plan: it is finite, keeps its targets, and gets no worse where hardware or load get easier."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from paceline.costs.capacity import Replica, broken_targets
from paceline.costs.estimator import MAX_CARDS, DatasheetEstimator
from paceline.costs.fitted import FittedStepTime
from paceline.costs.formats import KV_FORMATS, WEIGHT_FORMATS
from paceline.costs.hardware import CATALOGUE
from paceline.costs.known_models import KNOWN_MODELS
from paceline.costs.load import Load, Margins, Targets
from paceline.costs.planner import plan
from paceline.costs.question import Question
from paceline.planning.answer import answer, as_json
from paceline.planning.table import print_answer

EASIER = 1.0 - 1e-9
LAW = FittedStepTime(4e-4, 6.4e-4, 8.0, 4e-7, 1.5e-8, 8e-5)


ESTIMATORS = st.builds(
    DatasheetEstimator,
    st.sampled_from(list(KNOWN_MODELS.values())),
    st.sampled_from(list(CATALOGUE.values())),
    st.sampled_from((1, 2, 8, 64, MAX_CARDS)),
    st.sampled_from(list(WEIGHT_FORMATS.values())),
    st.sampled_from(list(KV_FORMATS.values())),
    st.sampled_from((0.3, 0.7, 1.0)),
)
LOADS = st.builds(
    Load,
    st.none() | st.floats(1e-3, 1e4),
    st.integers(1, 20_000),
    st.integers(1, 4_000),
    st.sampled_from((0.0, 1.0, 10.0)),
    st.sampled_from((0.0, 0.3, 0.9)),
    st.none() | st.just(50),
)
MARGINS = st.builds(Margins, st.sampled_from((0.0, 0.1)), st.sampled_from((0.6, 0.8, 1.0)))
TARGETS = st.builds(Targets, st.none() | st.floats(0.02, 10.0), st.none() | st.floats(0.002, 0.3))
REPLICAS = st.builds(Replica, ESTIMATORS, LOADS, MARGINS, st.none() | st.just(LAW))
QUESTIONS = st.builds(Question, REPLICAS, TARGETS, st.none() | st.just(2.5))


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from numbers(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part)


@settings(max_examples=60, deadline=None)
@given(QUESTIONS, st.sampled_from((0, 3)))
def test_any_question_has_a_finite_answer_inside_its_targets(question: Question, num_turns: int) -> None:
    found = answer(question, has_pools=True, num_turns=num_turns)
    assert all(map(math.isfinite, numbers(as_json(found))))
    json.dumps(as_json(found), allow_nan=False)
    print_answer(Console(file=StringIO()), found)
    targets, replica = question.targets, question.replica
    if found.plan.capacity is None:
        assert found.plan.refusal is not None
        return
    assert not broken_targets(found.plan.capacity, targets)
    if found.plan.fleet is not None:
        assert not broken_targets(found.plan.fleet.point, targets)
        assert found.plan.fleet.point.batch <= found.plan.capacity.batch <= replica.memory_limit
        assert found.plan.fleet.utilization <= replica.margins.utilization * (1 + 1e-6)
    if found.pools is not None:
        assert targets.tpot_s is None or found.pools.tpot_s <= targets.tpot_s
        assert targets.ttft_s is None or found.pools.ttft_p99_s <= targets.ttft_s * (1 + 1e-9)
        assert found.pools.decode_batch <= replica.memory_limit


@settings(max_examples=60, deadline=None)
@given(REPLICAS, st.lists(st.integers(1, 65_536), min_size=2, max_size=6))
def test_a_larger_batch_is_never_slower_for_all_nor_faster_for_one(replica: Replica, batches: list[int]) -> None:
    for less, more in pairwise(map(replica.at_batch, sorted(batches))):
        assert more.rate_per_s >= less.rate_per_s * EASIER
        for name in ("decode_step_s", "tpot_s", "ttft_s", "ttft_p99_s"):
            assert getattr(more, name) >= getattr(less, name) * EASIER


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_another_replica_never_adds_latency(question: Question) -> None:
    replica, fleet = question.replica, plan(question).fleet
    if fleet is None or replica.load.rate_per_s is None:
        return
    relieved = replica.at_rate(replica.load.rate_per_s / (fleet.num_replicas + 1))
    assert relieved is not None
    for name in ("tpot_s", "ttft_s", "ttft_p99_s", "e2e_s"):
        assert getattr(relieved, name) <= getattr(fleet.point, name) / EASIER


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_what_makes_a_step_cheaper_never_lowers_capacity(question: Question) -> None:
    # A TTFT target next to what a prompt alone takes would make much of the little below.
    replica, targets = question.replica, replace(question.targets, ttft_s=None)
    estimator, load = replica.estimator, replica.load
    capacity = plan(replace(question, targets=targets)).capacity
    if capacity is None:
        return

    def rate_with(**changed: object) -> float:
        easier = plan(Question(replace(replica, **changed), targets)).capacity  # type: ignore[arg-type]  # by name
        assert easier is not None
        return easier.rate_per_s

    # Lighter weights reach the ridge with fewer prompts together, which costs a little where prompts are a few tokens.
    least = capacity.rate_per_s * 0.95
    for weights in WEIGHT_FORMATS.values():
        if weights.bytes_per_number < estimator.weights.bytes_per_number:
            assert rate_with(estimator=replace(estimator, weights=weights)) >= least
    if estimator.num_cards < MAX_CARDS and replica.step_time is None:
        assert rate_with(estimator=replace(estimator, num_cards=2 * estimator.num_cards)) >= 2 * least
    assert rate_with(load=replace(load, input_tokens=max(1, load.input_tokens // 2))) >= least
    assert rate_with(load=replace(load, cached_share=max(0.5, load.cached_share))) >= least


@settings(max_examples=60, deadline=None)
@given(ESTIMATORS, st.sampled_from((1, 20, 300, 1_500)), st.sampled_from((1, 5, 300)), st.integers(1, 3))
def test_all_of_a_replica_may_be_planned_for(
    estimator: DatasheetEstimator, num_input: int, num_output: int, times: int
) -> None:
    margins = Margins(0.1, 1.0)
    replica = Replica(estimator, Load(None, num_input, num_output), margins)
    capacity = plan(Question(replica, Targets())).capacity
    if capacity is None:
        return
    for rate_per_s in (times * min(capacity.rate_per_s, 1e6), times / max(replica.prefill_s, 1e-6)):
        load = Load(rate_per_s, num_input, num_output)
        found = answer(Question(Replica(estimator, load, margins), Targets()), has_pools=True, num_turns=0)
        assert found.plan.fleet is not None
        assert found.plan.fleet.utilization <= 1.0 + 1e-6
        assert found.pools is None or found.pools.num_prefill_replicas > rate_per_s * replica.prefill_s
