"""Servers for the commands to ask: a scripted one that is fast and says what it is told, and SmolLM2."""

from collections.abc import Iterator

import pytest

from running_server import RunningServer, launch, serve_model, wait_until_ready


@pytest.fixture(scope="session")
def scripted() -> Iterator[RunningServer]:
    """Answers " five, six, …", a token in 2 ms."""
    running = wait_until_ready(launch({}, {"step_s": 0.002}))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def smol() -> Iterator[RunningServer]:
    running = serve_model("smollm2-135m", "--kv-memory", "128MiB")
    yield running
    assert running.stop() == 0
