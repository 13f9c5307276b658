"""What a terminal shows of a running batch: how far it is, what failed, how fast, how long still.

Off a terminal it is the last line only.
"""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from paceline.offline.batch_ask import Asked


class BatchProgress:
    """Counts answers that are on the disk, by whichever thread wrote them. `num_before`: answered by an earlier run."""

    def __init__(self, console: Console, num_lines: int, num_before: int) -> None:
        self._console = console
        self._num_before = num_before
        self._num_done = 0
        self._num_failed = 0
        self._num_tokens = 0
        self._started_s = time.monotonic()
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[about]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("batch", total=num_lines, completed=num_before, about="")

    def __enter__(self) -> Self:
        self._started_s = time.monotonic()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        elapsed_s = time.monotonic() - self._started_s
        before = f", {self._num_before:,} were before" if self._num_before else ""
        self._console.print(
            f"{self._num_done:,} lines answered in {elapsed_s:.1f} s, {self.about()}{before}",
            highlight=False,
            markup=False,
        )

    def on_written(self, answers: Sequence[Asked]) -> None:
        """These are on the disk."""
        self._num_done += len(answers)
        self._num_failed += sum(asked.answer.error is not None for asked in answers)
        self._num_tokens += sum(asked.num_tokens for asked in answers)
        self._bar.update(self._task, advance=len(answers), about=self.about())

    def about(self) -> str:
        """Failures, and the mean rate so far."""
        rate = self._num_tokens / max(time.monotonic() - self._started_s, 1e-9)
        return f"{self._num_failed:,} failed, {rate:,.0f} output tokens/s"
