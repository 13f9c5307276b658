"""Sends a server what its OpenAPI document allows, and what it does not: no answer may be a 5xx, none may differ from
the document, and what does not fit the document is refused.

``python tests/server/schema_fuzz.py --examples 500`` does it to the real model; a stream before and after has the same
ids and the gauges are back where they were.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import hypothesis
import schemathesis
from hypothesis import HealthCheck
from schemathesis.specs.openapi import checks as openapi_checks

from metrics_page import scrape
from running_server import RunningServer, serve_model

CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
]
POSITIVE, NEGATIVE = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
# Bounds for fuzzing: what is asked for is cheap, and valid even beside other fields more often than by chance.
NOTHING: dict[str, Any] = {"enum": [None]}
NARROWED = {
    "n": {"maximum": 2},
    "max_tokens": {"type": "integer", "minimum": 1, "maximum": 4},
    "min_tokens": {"maximum": 1},
    "logit_bias": {"propertyNames": {"pattern": "^[0-9]{1,2}$"}},
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), NOTHING),
}
# Of two fields that ask for one thing each route is sent one. Without max_tokens answers would fill the context.
LEFT_OUT = {
    "ChatCompletionRequest": ("structured_outputs", "max_completion_tokens"),
    "CompletionRequest": ("response_format",),
}
MODEL = "smollm2-135m"
REFERENCE = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24, "ignore_eos": True}
GAUGES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
SETTLE_S = 10.0


@dataclass(frozen=True)
class Tally:
    """What one route was sent in one mode."""

    route: str
    mode: str
    num_examples: int
    statuses: dict[int, int]


def fuzz(server: RunningServer, num_examples: int, seed: int = 0) -> Iterator[Tally]:
    """Send every operation of the document `num_examples` of each mode. Raises what a check finds wrong."""
    root = server.url.removesuffix("/v1")
    for mode in (POSITIVE, NEGATIVE):
        document = httpx.get(f"{root}/openapi.json").json()
        if mode is POSITIVE:
            narrow(document["components"]["schemas"])
        for result in schemathesis.openapi.from_dict(document).get_all_operations():
            operation = result.ok()
            # Without a body nothing sent can contradict the document: any text is a model's name.
            if mode is POSITIVE or operation.body:
                yield run(operation, mode, root, (num_examples, seed))


def narrow(schemas: dict[str, Any]) -> None:
    """Put the bounds for fuzzing into the schemas."""
    for schema in schemas.values():
        for name, bounds in NARROWED.items():
            schema.get("properties", {}).get(name, {}).update(bounds)
    for name, left_out in LEFT_OUT.items():
        schemas[name]["properties"] |= dict.fromkeys(left_out, NOTHING)
        schemas[name]["required"].append("max_tokens")


def run(operation: Any, mode: Any, root: str, budget: tuple[int, int]) -> Tally:
    """One operation in one mode."""
    statuses: dict[int, int] = {}
    num_examples, seed = budget

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=num_examples,
        deadline=None,
        database=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
        phases=(hypothesis.Phase.generate,),
    )
    @hypothesis.given(case=operation.as_strategy(mode))
    def send(case: Any) -> None:
        case.body = with_integers(case.body)
        response = case.call_and_validate(base_url=root, checks=CHECKS, timeout=60)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1

    send()
    return Tally(operation.label, mode.value, sum(statuses.values()), statuses)


def with_integers(value: Any) -> Any:
    """The value with 1 for 1.0: JSON Schema holds them for one, typed JSON does not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [with_integers(item) for item in value]
    if isinstance(value, dict):
        return {name: with_integers(item) for name, item in value.items()}
    return value


def reference_ids(server: RunningServer, model: str) -> list[int]:
    """The ids of a stream that depends on nothing but itself."""
    body = REFERENCE | {"model": model, "stream": True, "return_token_ids": True}
    ids: list[int] = []
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                ids += json.loads(line.removeprefix("data: "))["choices"][0]["token_ids"]
    assert len(ids) == REFERENCE["max_tokens"]
    return ids


def gauges(server: RunningServer) -> dict[str, float]:
    """The gauges of /metrics that must come back to where they were."""
    page = scrape(server)
    return {name: page.value(name) for name in GAUGES}


def wait_for_baseline(server: RunningServer, baseline: dict[str, float]) -> None:
    """Return when the gauges are at their baseline. Raises AssertionError when they do not get there."""
    deadline_s = time.monotonic() + SETTLE_S
    while (found := gauges(server)) != baseline:
        assert time.monotonic() < deadline_s, f"gauges at {found}, at first {baseline}"
        time.sleep(0.1)


def main() -> None:
    """Fuzz a server of the real model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--examples", type=int, default=500, help="of each mode, for every route")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    server = serve_model(MODEL, "--max-model-len", "64", "--kv-memory", "64MiB")
    try:
        baseline, before = gauges(server), reference_ids(server, MODEL)
        for tally in fuzz(server, options.examples, options.seed):
            print(f"{tally.route:32} {tally.mode:9} {tally.num_examples:5} {tally.statuses}", flush=True)
        assert reference_ids(server, MODEL) == before, "the reference stream changed"
        wait_for_baseline(server, baseline)
    finally:
        assert server.stop() == 0


if __name__ == "__main__":
    main()
