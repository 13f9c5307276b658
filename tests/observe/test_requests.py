"""What is observed of a choice, and what is left out when it did not happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from paceline.core.histogram import Histogram
from paceline.observe.families import FamilyMaker
from paceline.observe.metrics import Page
from paceline.observe.requests import FinishedChoice, RequestMetrics

SPANS = st.floats(0, 100, allow_nan=False)


def total(histogram: Histogram) -> float:
    return histogram.state().total


def count(histogram: Histogram) -> int:
    return sum(histogram.state().counts)


@given(SPANS, SPANS, SPANS, SPANS, st.integers(2, 1000))
def test_the_parts_of_a_choice_add_up(tokenizing: float, queue: float, prefill: float, decode: float, num: int) -> None:
    metrics = RequestMetrics()
    submitted_s = 1000 + tokenizing
    first_s = submitted_s + queue + prefill
    choice = FinishedChoice("length", 1000, submitted_s, submitted_s + queue, first_s, first_s + decode, 50, 30, num)
    metrics.finish(choice)
    expected = {
        metrics.queue_time: queue,
        metrics.prefill_time: prefill,
        metrics.decode_time: decode,
        metrics.inference_time: prefill + decode,
        metrics.e2e_latency: tokenizing + queue + prefill + decode,
        metrics.time_per_output_token: decode / (num - 1),
        metrics.prompt_tokens: 50,
        metrics.computed_tokens: 20,
        metrics.generation_tokens: num,
    }
    for histogram, value in expected.items():
        assert count(histogram) == 1
        assert total(histogram) == pytest.approx(value, abs=1e-6)
    assert metrics.finished == {"length": 1, "stop": 0, "abort": 0, "error": 0}


def test_a_scored_prompt_has_no_first_token() -> None:
    metrics = RequestMetrics()
    metrics.finish(FinishedChoice("length", 0.0, 0.1, 0.3, None, 0.5, 9, 0, 0))
    assert (count(metrics.queue_time), count(metrics.inference_time), count(metrics.e2e_latency)) == (1, 1, 1)
    assert (count(metrics.prefill_time), count(metrics.decode_time), count(metrics.time_per_output_token)) == (0, 0, 0)


def test_one_token_has_no_time_per_token_after_the_first() -> None:
    metrics = RequestMetrics()
    metrics.finish(FinishedChoice("stop", 0.0, 0.1, 0.3, 0.5, 0.5, 9, 0, 1))
    assert (count(metrics.time_per_output_token), count(metrics.decode_time)) == (0, 1)


def test_a_name_from_outside_cannot_break_the_page() -> None:
    make = FamilyMaker({"model_name": 'a"b\\c\nd', "engine": "0"})
    registry = CollectorRegistry()
    registry.register(Page([make.gauge("x", "A text.", 3)]))
    assert generate_latest(registry).splitlines()[-1] == rb'paceline:x{engine="0",model_name="a\"b\\c\nd"} 3.0'


def test_buckets_are_cumulative_and_end_with_the_count() -> None:
    histogram = Histogram([0.5, 2.0])
    for value in (0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    family = FamilyMaker({}).histogram("x", "A text.", histogram.state())
    samples = [(sample.name, sample.labels.get("le"), sample.value) for sample in family.samples]
    assert samples == [
        ("paceline:x_bucket", "0.5", 2),
        ("paceline:x_bucket", "2.0", 3),
        ("paceline:x_bucket", "+Inf", 4),
        ("paceline:x_count", None, 4),
        ("paceline:x_sum", None, 8.6),
    ]
