"""Metric families of what the API process saw of its requests: counts, times in seconds, lengths in tokens."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from paceline.core.histogram import Histogram
from paceline.observe.families import FamilyMaker, LabelledCounts
from paceline.observe.requests import RequestMetrics


def count_families(make: FamilyMaker, requests: RequestMetrics) -> Iterator[Metric]:
    """How requests ended, or did not begin."""
    finished: LabelledCounts = {(reason,): count for reason, count in requests.finished.items()}
    rejected: LabelledCounts = {(code,): count for code, count in requests.rejected.items()}
    yield make.counters(
        "request_success",
        "Choices that are over: stop, length, abort (client left), error (our fault).",
        ("finished_reason",),
        finished,
    )
    yield make.counters(
        "admission_rejections", "Requests for generation refused, by error code.", ("reason",), rejected
    )
    yield make.counters(
        "http_requests",
        "HTTP requests by route and status; 499 if the client left before an answer began.",
        ("route", "status"),
        requests.http,
    )


def time_families(make: FamilyMaker, requests: RequestMetrics) -> Iterator[Metric]:
    """Times, always in seconds."""

    def seconds(name: str, text: str, histogram: Histogram) -> Metric:
        return make.histogram(f"{name}_seconds", text, histogram.state())

    yield seconds("time_to_first_token", "Arrival to first token, queue included.", requests.time_to_first_token)
    yield seconds("inter_token_latency", "Gap between a choice's tokens.", requests.inter_token_latency)
    yield seconds(
        "request_time_per_output_token",
        "First token to end, over the tokens after the first.",
        requests.time_per_output_token,
    )
    yield seconds("e2e_request_latency", "Arrival to end.", requests.e2e_latency)
    yield seconds("request_queue_time", "Submitted to admitted.", requests.queue_time)
    yield seconds("request_prefill_time", "Admitted to first token.", requests.prefill_time)
    yield seconds("request_decode_time", "First token to end.", requests.decode_time)
    yield seconds("request_inference_time", "Admitted to end.", requests.inference_time)


def length_families(make: FamilyMaker, requests: RequestMetrics) -> Iterator[Metric]:
    """Lengths, and what was asked for."""

    def tokens(name: str, text: str, histogram: Histogram) -> Metric:
        return make.histogram(name, text, histogram.state())

    yield tokens("request_prompt_tokens", "Prompt tokens of a finished choice.", requests.prompt_tokens)
    yield tokens(
        "request_prefill_kv_computed_tokens", "Prompt tokens it did not find in the cache.", requests.computed_tokens
    )
    yield tokens("request_generation_tokens", "Tokens of a finished choice.", requests.generation_tokens)
    yield tokens("request_params_max_tokens", "max_tokens, where a request set it.", requests.max_tokens)
    yield tokens("request_params_n", "n of a request handed to the engine.", requests.num_choices)
