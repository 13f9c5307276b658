"""A figure of the report: plotly's own JSON (traces and layout) as plain dicts, with what a reader needs around it.

Plotly's Python objects only check what these dicts say; tests do that once, the report needn't import them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from paceline.bench.measures import Summary, Window
from paceline.bench.record import RequestRecord
from paceline.bench.result import Point, Result
from paceline.bench.thinned import summarize_point

Json = dict[str, object]

# Told apart in light and dark, and by readers who see few colours (after Okabe and Ito); dashes repeat the difference.
COLORS = ("#2f7fd1", "#d98200", "#009e73", "#cc79a7", "#8c6bb1", "#d55e00", "#3fa7c9", "#8a8a8a")
DASHES = ("solid", "dash", "dot", "dashdot")
MS = 1000.0
LARGEST_LINEAR_SPAN = 6.0


@dataclass(frozen=True, slots=True)
class View:
    """A point as the report sees it: its requests and what was measured of them."""

    point: Point
    records: tuple[RequestRecord, ...]
    window: Window
    summary: Summary

    @property
    def streams(self) -> tuple[RequestRecord, ...]:
        """The requests but those that were injected to disturb them."""
        return tuple(record for record in self.records if record.index not in self.point.injected)


def views_of(result: Result) -> tuple[View, ...]:
    """Measure every point of a result. What was injected disturbs the others and is no sample of them."""
    return tuple(_view(result, point) for point in result.header.points)


def _view(result: Result, point: Point) -> View:
    records = result.records_of(point)
    window = Window(point.window_start_s, point.window_end_s)
    streams = [record for record in records if record.index not in point.injected]
    return View(point, records, window, summarize_point(streams, point, result.header.targets))


@dataclass(frozen=True, slots=True)
class Figure:
    """One plot. `caption` says how to read it, for those who can't see it too."""

    figure_id: str
    title: str
    caption: str
    traces: tuple[Json, ...]
    layout: Json


def axis(title: str, **more: object) -> Json:
    """An axis with its title."""
    return {"title": {"text": title}, **more}


def latency_axis(title: str, values: Iterable[float | None]) -> Json:
    """Linear from zero; logarithmic where the values span more than a linear axis can show."""
    known = [value for value in values if value is not None]
    if known and max(known) > LARGEST_LINEAR_SPAN * min(known):
        return log_axis(title)
    return axis(title, rangemode="tozero")


def log_axis(title: str) -> Json:
    """A logarithmic axis that names its ticks in full: 1, 2, 5, 10, 20 …"""
    ticks = [digit * 10.0**power for power in range(-3, 7) for digit in (1, 2, 5)]
    return axis(f"{title}, log scale", type="log", tickvals=ticks, ticktext=[f"{tick:,.10g}" for tick in ticks])


def layout(x: Json, y: Json, height: int = 420, **more: object) -> Json:
    """The common layout: the legend above, room for titles, nothing that moves while reading."""
    return {
        "xaxis": x,
        "yaxis": y,
        "height": height,
        "margin": {"l": 60, "r": 40, "t": 40, "b": 50},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
        "hovermode": "closest",
        **more,
    }


def style(index: int) -> tuple[str, str]:
    """Colour and dash of the series at an index."""
    return COLORS[index % len(COLORS)], DASHES[index // len(COLORS) % len(DASHES)]


def milliseconds(seconds: float | None) -> float | None:
    """Seconds as milliseconds; nothing stays nothing."""
    return None if seconds is None else seconds * MS


def safe(text: str) -> str:
    """Text for plotly, which reads tags in its labels."""
    return escape(text, quote=False)
