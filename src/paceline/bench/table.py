"""What the terminal shows: the table of points when an experiment ends, one line of progress while it runs."""

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from paceline.bench.columns import HEADS, cells, written
from paceline.bench.measures import ttft_s
from paceline.bench.record import Outcome, RequestRecord
from paceline.bench.report import client_of, cuts_of, limits_of, warnings_of
from paceline.bench.report_figure import views_of
from paceline.bench.result import Experiment, Result

# A terminal of 80 columns has room for these; the report and the file have the rest.
NARROW_HEADS = ("point", "output tokens/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99")
WIDE_COLUMNS = 150


def print_result(console: Console, result: Result) -> None:
    """Warnings first, then one row a point, then what limits each."""
    views = views_of(result)
    for warning in warnings_of(views):
        console.print(f"[bold red]{escape(warning)}[/]", highlight=False)
    heads = HEADS if console.width >= WIDE_COLUMNS else NARROW_HEADS
    table = _table(heads)
    mark = "best" if result.header.experiment is Experiment.GOODPUT else "knee"
    for view in views:
        row = dict(zip(HEADS, cells(view.point, view.summary), strict=True))
        is_knee = view.point.label == result.header.knee
        name = f"{row['point']} ({mark})" if is_knee else row["point"]
        table.add_row(
            escape(name), *(escape(row[head]) for head in heads if head != "point"), style="bold" if is_knee else ""
        )
    console.print(table)
    for ratio in result.header.ratios:
        times = f"{ratio.ratio:.3f}× ({ratio.low:.3f} to {ratio.high:.3f}, {len(ratio.pairs)} pairs)"
        console.print(
            f"{escape(ratio.measure)}: {escape(ratio.label)} / {escape(ratio.baseline)} {times}", highlight=False
        )
    # A curve's knee speaks for it here; the report has a sentence on every point.
    told = [view for view in views if view.point.label == result.header.knee] or views
    for note in (*limits_of(told), *cuts_of(views), *client_of(views)):
        console.print(escape(note), style="dim", highlight=False)


def _table(heads: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for head in heads:
        table.add_column(head, justify="left" if head == "point" else "right", overflow="fold")
    return table


class Progress:
    """One line that follows the requests of a load; `on_record` is told each as it ends. Shows nothing off a terminal.

    `num_expected`: how many requests there will be, where that is known.
    """

    def __init__(self, console: Console, label: str, num_expected: int | None = None) -> None:
        self._label = label
        self._num_expected = num_expected
        self._num_done = 0
        self._num_lost = 0
        self._num_tokens = 0
        self._last_ttft_s: float | None = None
        self._started_s = time.monotonic()
        # 4 times a second: the client's event loop has better things to do.
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self.line)

    def __enter__(self) -> Self:
        self._started_s = time.monotonic()
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def on_record(self, record: RequestRecord) -> None:
        """Count a request that ended."""
        self._num_done += 1
        self._num_lost += record.outcome is not Outcome.COMPLETED
        self._num_tokens += record.output_tokens
        self._last_ttft_s = ttft_s(record)

    def line(self) -> Text:
        """The line as it is now."""
        elapsed_s = max(time.monotonic() - self._started_s, 1e-9)
        total = f"/{self._num_expected}" if self._num_expected is not None else ""
        text = Text(f"{self._label}  {elapsed_s:.0f} s  {self._num_done}{total} requests")
        text.append(f"  {self._num_tokens / elapsed_s:.0f} output tokens/s  last TTFT {written(self._last_ttft_s)}")
        if self._num_lost:
            text.append(f"  {self._num_lost} not completed", style="bold red")
        return text
