"""Servers for tests: `server` is shared and fast, `start_server` starts one with options of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from running_server import RunningServer, launch, serve_model, wait_until_ready


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """A server with a step of 0.3 ms, for tests that leave no mark on it."""
    running = wait_until_ready(launch({}, {"step_s": 0.0003}))
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="session")
def smol() -> Iterator[RunningServer]:
    """SmolLM2 behind the command line, with a pool that is never short."""
    running = serve_model("smollm2-135m", "--kv-memory", "256MiB")
    yield running
    assert running.stop() == 0


@pytest.fixture
def start_server() -> Iterator[Callable[..., RunningServer]]:
    """Starts servers with options of their own and ends them."""
    started: list[RunningServer] = []

    def start(serve: dict[str, Any] | None = None, **engine: Any) -> RunningServer:
        started.append(wait_until_ready(launch(serve or {}, engine)))
        return started[-1]

    yield start
    for running in started:
        running.stop()


@pytest.fixture
def client(server: RunningServer) -> Iterator[openai.OpenAI]:
    with server.openai() as client:
        yield client


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """A file for the scripted engine's journal."""
    path = tmp_path / "journal"
    path.touch()
    return path
