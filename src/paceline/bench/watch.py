"""How an experiment lets someone follow it: one watcher a load. The terminal's is in `table`; else nobody looks."""

from types import TracebackType
from typing import Protocol, Self

from paceline.bench.record import RequestRecord


class Watcher(Protocol):
    """Someone who follows a load while it runs."""

    def __enter__(self) -> Self:
        """The load begins."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It ended."""

    def on_record(self, record: RequestRecord) -> None:
        """A request ended."""


class NoWatcher:
    """Nobody does."""

    def __enter__(self) -> Self:
        """Nothing to prepare."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to end."""

    def on_record(self, record: RequestRecord) -> None:
        """Nothing to tell."""


def unwatched(label: str, num_expected: int | None) -> Watcher:
    """What `Settings.watch` is by default."""
    return NoWatcher()
