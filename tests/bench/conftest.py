"""Mock servers, one process each, ended with the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mocks import RunningMock, start_mock

StartMock = Callable[..., RunningMock]


@pytest.fixture
def mock() -> Iterator[StartMock]:
    running: list[RunningMock] = []

    def start(**law: Any) -> RunningMock:
        running.append(start_mock(**law))
        return running[-1]

    yield start
    for each in running:
        each.stop()
