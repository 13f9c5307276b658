"""Counts add up: after many requests whose outcomes the client knows, every counter says what the client says."""

import contextlib
import json
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from metrics_page import MetricsPage, scrape
from running_server import RunningServer, serve_model
from smol_engine import MODEL

NUM_REQUESTS = 150
ROUTES = {"completions": {"prompt": "a"}, "chat/completions": {"messages": [{"role": "user", "content": "go"}]}}
FOREVER = {"max_tokens": 4000, "ignore_eos": True, "stream": True}
REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    ({"n": 0}, 400, "invalid_value"),
    ({"max_tokens": 10**6}, 400, "context_length_exceeded"),
    ({"model": "other"}, 404, "model_not_found"),
    ({"audio": {"voice": "x"}}, 400, "unsupported_parameter"),
]


class Truth:
    """What the client saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.endings: Counter[tuple[str, ...]] = Counter()
        self.refusals: Counter[tuple[str, ...]] = Counter()
        self.http: Counter[tuple[str, ...]] = Counter()
        self.totals: Counter[str] = Counter()

    def note_answer(self, route: str, body: dict[str, Any], choices: list[str], usage: dict[str, Any]) -> None:
        with self.lock:
            self.http[f"/v1/{route}", "200"] += 1
            self.endings.update((reason,) for reason in choices)
            self.totals["requests"] += 1
            self.totals["n"] += body.get("n", 1)
            self.totals["max_tokens"] += body["max_tokens"]
            self.totals["choices"] += len(choices)
            self.totals["prompt"] += usage["prompt_tokens"] * len(choices)
            self.totals["output"] += usage["completion_tokens"]

    def note_refusal(self, route: str, status: int, code: str) -> None:
        with self.lock:
            self.http[f"/v1/{route}", str(status)] += 1
            self.refusals[code,] += 1


def ask(client: httpx.Client, truth: Truth, number: int) -> None:
    """One request, drawn by its number, and what came of it."""
    draw = random.Random(number)
    route = draw.choice(list(ROUTES))
    body: dict[str, Any] = {"model": "scripted", "max_tokens": draw.randint(1, 60), **ROUTES[route]}
    if draw.random() < 0.25:
        extra, status, code = draw.choice(REFUSALS)
        response = client.post(route, json=body | extra)
        assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text
        truth.note_refusal(route, status, code)
        return
    body |= {"n": draw.randint(1, 3), "stop": draw.choice([None, [" seven,"], ["zzz"]])}
    if draw.random() < 0.5:
        answer = client.post(route, json=body).json()
        reasons = [choice["finish_reason"] for choice in answer["choices"]]
        truth.note_answer(route, body, reasons, answer["usage"])
        return
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    lines = client.post(route, json=body).text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    reasons = [choice["finish_reason"] for event in events for choice in event["choices"] if choice["finish_reason"]]
    truth.note_answer(route, body, reasons, events[-1]["usage"])


def generated(page: MetricsPage) -> dict[tuple[str, ...], float]:
    """HTTP requests on the routes that generate."""
    counts = page.by("http_requests_total", "route", "status")
    return {key: count for key, count in counts.items() if key[0].endswith("completions")}


def test_every_counter_equals_what_the_client_counted(start_server: Callable[..., RunningServer]) -> None:
    server, truth = start_server(step_s=0.0005), Truth()
    with httpx.Client(base_url=server.url, timeout=20) as client, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ask(client, truth, number), range(NUM_REQUESTS)))
    page, totals = scrape(server), truth.totals
    assert generated(page) == truth.http
    assert page.by("request_success_total", "finished_reason") == truth.endings
    assert set(truth.endings) == {("stop",), ("length",)}
    assert page.by("admission_rejections_total", "reason") == truth.refusals
    assert len(truth.refusals) == len(REFUSALS)
    assert page.value("prompt_tokens_total") == page.value("request_prompt_tokens_sum") == totals["prompt"]
    assert page.value("request_generation_tokens_sum") == totals["output"]
    assert page.value("generation_tokens_total") >= totals["output"], "tokens past a stop string are sampled too"
    assert page.value("inter_token_latency_seconds_count") == totals["output"] - totals["choices"]
    assert page.value("request_params_n_sum") == totals["n"]
    assert page.value("request_params_max_tokens_sum") == totals["max_tokens"]
    for name in ("request_params_n", "request_params_max_tokens"):
        assert page.value(f"{name}_count") == totals["requests"]
    times = ["e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time"]
    for name in [*times, "request_inference_time", "time_to_first_token"]:
        assert page.value(f"{name}_seconds_count") == totals["choices"], name
    check_times(page)
    check_baseline(page)


def check_times(page: MetricsPage) -> None:
    """Times are parts of each other."""
    prefill, decode = (page.value(f"request_{name}_time_seconds_sum") for name in ("prefill", "decode"))
    inference, queue = (page.value(f"request_{name}_time_seconds_sum") for name in ("inference", "queue"))
    ttft, e2e = page.value("time_to_first_token_seconds_sum"), page.value("e2e_request_latency_seconds_sum")
    assert prefill + decode == pytest.approx(inference)
    assert ttft + decode == pytest.approx(e2e)
    assert 0 < queue + inference <= e2e
    assert decode == pytest.approx(page.value("inter_token_latency_seconds_sum"), rel=0.05)


def check_baseline(page: MetricsPage) -> None:
    """Nobody is left."""
    for name in ("num_requests_running", "num_requests_waiting", "num_open_requests", "kv_cache_usage_perc"):
        assert page.value(name) == 0, name
    assert page.value("kv_blocks", state="in_use") == 0


def wait_for_baseline(server: RunningServer, within_s: float) -> MetricsPage:
    deadline_s = time.monotonic() + within_s
    while True:
        page = scrape(server)
        try:
            check_baseline(page)
        except AssertionError:
            assert time.monotonic() < deadline_s, f"not at the baseline after {within_s} s"
            time.sleep(0.05)
        else:
            return page


def send_and_leave(server: RunningServer, data: bytes, wait_s: float) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(data)
        time.sleep(wait_s)


def raw_request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data


def test_clients_that_leave_in_every_phase_are_counted_once_and_leave_no_gauge_up(
    start_server: Callable[..., RunningServer],
) -> None:
    server = start_server(step_s=0.002)
    whole = raw_request({"model": "scripted", "prompt": "a", "n": 2} | FOREVER)
    unstreamed = raw_request({"model": "scripted", "prompt": "a", "n": 2} | FOREVER | {"stream": False})
    headers_end = whole.index(b"\r\n\r\n") + 4
    phases = {
        "headers": (whole[: headers_end - 3], 0.02),
        "body": (whole[: headers_end + 5], 0.02),
        "submitted": (whole, 0.0),
        "stream": (whole, 0.1),
        "whole answer": (unstreamed, 0.1),
    }
    with ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda phase: send_and_leave(server, *phase), [*phases.values()] * 10))
    page = wait_for_baseline(server, 1.0)
    assert page.by("request_success_total", "finished_reason") == {("abort",): 2 * 10 * 3}
    assert page.by("admission_rejections_total", "reason") == {("invalid_value",): 10}, "bodies that break off"
    counts = generated(page)
    assert counts.keys() <= {("/v1/completions", status) for status in ("200", "400", "499")}
    assert counts["/v1/completions", "400"] == 10
    assert 10 <= counts["/v1/completions", "200"] <= 20
    assert sum(counts.values()) == 40
    for name in ("e2e_request_latency_seconds", "request_generation_tokens"):
        assert page.value(f"{name}_count") == 0, "a choice that was cut short is in a histogram of whole ones"


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningServer]:
    """The real engine with 20 rows."""
    server = serve_model(MODEL, "--max-num-seqs", "20", "--kv-memory", "128MiB")
    yield server
    assert server.stop() == 0


def test_b061_gauges_are_at_their_baseline_a_second_after_everyone_left(narrow: RunningServer) -> None:
    """B061: 20 streams running, 10 waiting; all sockets close at once."""
    connections = []
    for number in range(30):
        connections.append(socket.create_connection(("127.0.0.1", narrow.port)))
        prompt = list(range(1000 + 50 * number, 1040 + 50 * number))
        connections[-1].sendall(raw_request({"model": MODEL, "prompt": prompt} | FOREVER | {"max_tokens": 220}))
    deadline_s = time.monotonic() + 60
    while (busy := scrape(narrow)).value("num_requests_running") < 20 or busy.value("num_requests_waiting") < 10:
        assert time.monotonic() < deadline_s, "they never all ran"
        time.sleep(0.1)
    assert busy.value("kv_cache_usage_perc") > 0
    assert busy.value("num_requests_waiting_by_reason", reason="capacity") == 10
    for connection in connections:
        with contextlib.suppress(OSError):
            connection.close()
    page = wait_for_baseline(narrow, 1.0)
    assert page.value("kv_blocks", state="cached") > 0
    assert page.by("request_success_total", "finished_reason") == {("abort",): 30}
    answer = narrow.post("completions", {"model": MODEL, "prompt": [5, 6], "max_tokens": 3})
    assert answer.json()["usage"]["completion_tokens"] == 3
    assert scrape(narrow).value("request_generation_tokens_sum") == 3
