"""/metrics of a real server process: what it promises in docs/metrics.md, and when the engine is not there to ask."""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from test_http_lifecycle import engine_pids, free_port

from metrics_page import MetricsPage, scrape
from running_server import RunningServer, launch, wait_until_ready
from scripted_text import byte_ids

ROOT = Path(__file__).parents[2]
COMPLETION = {"model": "scripted", "prompt": "a", "max_tokens": 5}
ROW = re.compile(r"\| `(paceline:\w+)` \| (\w+) \|([^|]*)\|")


def wait_for(server: RunningServer, name: str, value: float, within_s: float) -> MetricsPage:
    deadline_s = time.monotonic() + within_s
    while (page := scrape(server)).value(name) != value:
        assert time.monotonic() < deadline_s, f"{name} is {page.value(name)}, not {value}"
        time.sleep(0.05)
    return page


@pytest.fixture(scope="module")
def page(server: RunningServer) -> MetricsPage:
    """The page of a server that has answered, refused and not found."""
    assert server.post("completions", COMPLETION).status_code == 200
    assert server.post("completions", COMPLETION | {"n": 0}).status_code == 400
    return scrape(server)


def test_the_documented_table_is_what_a_scrape_shows(page: MetricsPage) -> None:
    rows = ROW.findall((ROOT / "docs" / "metrics.md").read_text())
    documented = {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert len(documented) == len(rows), "a metric is documented twice"
    assert {name: (family.kind, family.labels) for name, family in page.families.items()} == documented


def test_the_dashboard_names_only_what_exists(page: MetricsPage) -> None:
    board = json.loads((ROOT / "deploy" / "grafana.json").read_text())
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) > 12
    names = {name for expression in expressions for name in re.findall(r"paceline:\w+", expression)}
    assert names <= set(page.names())
    labels = {label for expression in expressions for by in re.findall(r"by \(([^)]*)\)", expression)
              for label in by.split(", ")}  # fmt: skip
    assert labels <= {"le"}.union(*(family.labels for family in page.families.values()))
    for expression in expressions:
        assert expression.count("(") == expression.count(")"), expression


def test_no_key_is_asked_for_and_no_secret_shown(start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"api_keys": ["sesame"]})
    assert server.post("completions", COMPLETION).status_code == 401
    response = httpx.get(f"{server.url.removesuffix('/v1')}/metrics", timeout=5)
    assert "sesame" not in response.text
    page = MetricsPage(response.text)
    assert page.by("admission_rejections_total", "reason") == {("invalid_api_key",): 1}
    assert page.by("http_requests_total", "route", "status") == {("/v1/completions", "401"): 1}


def test_paths_that_clients_make_up_do_not_become_labels(start_server: Callable[..., RunningServer]) -> None:
    server = start_server()
    with httpx.Client(base_url=server.url.removesuffix("/v1")) as client:
        for number in range(20):
            client.get(f"/path-{number}")
            client.get(f"/v1/models/name-{number}")
    counts = scrape(server).by("http_requests_total", "route", "status")
    assert counts == {("other", "404"): 20, ("/v1/models/{name:path}", "404"): 20}


def test_a_scrape_while_the_model_loads() -> None:
    port = free_port()
    process = launch({"port": port}, {"load_s": 3.0})
    try:
        loading = RunningServer(process, f"http://127.0.0.1:{port}/v1", [])
        page = scrape_when_listening(loading)
        assert page.value("engine_up") == 0
        assert page.value("num_requests_running") == page.value("generation_tokens_total") == 0
        server = wait_until_ready(process)
        assert scrape(server).value("engine_up") == 1
    finally:
        process.terminate()
        process.communicate()


def scrape_when_listening(server: RunningServer) -> MetricsPage:
    """The port is bound, and refuses to speak, before HTTP is imported."""
    deadline_s = time.monotonic() + 10
    while True:
        try:
            return scrape(server)
        except httpx.TransportError:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def test_counters_go_on_when_the_engine_dies(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(faults={str(byte_ids("x")[0]): "exit"})
    server.post("completions", COMPLETION)
    before = scrape(server)
    assert before.value("generation_tokens_total") == 5
    for number in (1, 2):
        assert server.post("completions", COMPLETION | {"prompt": "x"}).status_code == 503
        down = scrape(server)
        assert (down.value("engine_up"), down.value("num_requests_running")) == (0, 0)
        assert down.value("generation_tokens_total") == 5 * number
        wait_for(server, "engine_up", 1, 10)
        assert server.post("completions", COMPLETION).status_code == 200
        again = scrape(server)
        assert again.value("generation_tokens_total") == 5 * (number + 1)
        assert again.value("engine_restarts_total") == number
        assert again.value("engine_steps_total") > down.value("engine_steps_total")
        assert again.value("iteration_tokens_total_count") >= down.value("iteration_tokens_total_count")
    assert again.by("request_success_total", "finished_reason") == {("length",): 3, ("error",): 2}
    assert again.by("admission_rejections_total", "reason") == {}


def test_a_scrape_of_an_engine_that_does_not_answer(start_server: Callable[..., RunningServer]) -> None:
    server = start_server(step_s=0.01)
    root = server.url.removesuffix("/v1")
    (pid,) = engine_pids(server.process.pid)
    body = COMPLETION | {"max_tokens": 4000, "stream": True}
    with httpx.stream("POST", f"{server.url}/completions", json=body, timeout=20) as response:
        lines = response.iter_lines()
        next(lines)
        busy = scrape(server)
        os.kill(pid, signal.SIGSTOP)
        try:
            before_s = time.monotonic()
            hung = scrape(server)
            assert time.monotonic() - before_s < 4
        finally:
            os.kill(pid, signal.SIGCONT)
        assert (busy.value("engine_up"), busy.value("num_requests_running")) == (1, 1)
        assert (hung.value("engine_up"), hung.value("num_requests_running")) == (0, 0)
        assert (hung.value("num_open_requests"), hung.value("num_requests_waiting")) == (1, 1)
        assert hung.value("engine_steps_total") >= busy.value("engine_steps_total") > 0
        again = wait_for(server, "engine_up", 1, 5)
        assert again.value("num_requests_running") == 1
    assert httpx.get(f"{root}/metrics").status_code == 200
