"""B079 over HTTP: no template from a request, and a model's own hostile one costs a bounded answer, not the server."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from running_server import RunningServer

RANGES = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
HOSTILE = {
    "loops": RANGES,
    "a gigabyte": "{{ 'x' * 1000000000 }}",
    "doubling": "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "a class": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ raise_exception.__globals__ }}",
}
CONVERSATION: dict[str, Any] = {"model": "scripted", "messages": [{"role": "user", "content": "a"}]}
MAX_ANSWER_S = 2.0


@pytest.mark.parametrize("path", ["chat/completions", "tokenize"])
def test_b079_a_template_from_a_request_is_refused(server: RunningServer, path: str) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"chat_template": RANGES}, "chat_template"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
        ({"chat_template_kwargs": {"chat_template": RANGES}}, "chat_template_kwargs.chat_template"),
    ]
    served = CONVERSATION | ({"max_tokens": 1} if path.startswith("chat") else {})
    for change, param in cases:
        started_s = time.perf_counter()
        refused = server.post(path, CONVERSATION | change)
        assert time.perf_counter() - started_s < MAX_ANSWER_S
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, param)
        assert "chat_template" in error["message"]
        assert server.post(path, served).status_code == 200


@pytest.mark.parametrize("name", HOSTILE)
def test_b079_a_hostile_model_template_costs_one_answer(
    start_server: Callable[..., RunningServer], tmp_path: Path, name: str
) -> None:
    (tmp_path / "hostile.jinja").write_text(HOSTILE[name])
    server = start_server({"chat_template": str(tmp_path / "hostile.jinja")})
    answers: list[tuple[httpx.Response, float]] = []

    def ask() -> None:
        started_s = time.perf_counter()
        answers.append((server.post("chat/completions", CONVERSATION), time.perf_counter() - started_s))

    asking = threading.Thread(target=ask)
    asking.start()
    while asking.is_alive():
        started_s = time.perf_counter()
        served = server.post("completions", {"model": "scripted", "prompt": "a", "max_tokens": 1})
        assert served.status_code == 200
        assert time.perf_counter() - started_s < MAX_ANSWER_S
    ((refused, took_s),) = answers
    assert refused.status_code == 400
    assert "template" in refused.json()["error"]["message"]
    assert took_s < MAX_ANSWER_S
    assert server.post("tokenize", CONVERSATION).status_code == 400
