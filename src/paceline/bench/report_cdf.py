"""Cumulative distributions: which share of the requests, or of the gaps, was at least this fast."""

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.bench.measures import e2e_s, gaps_s, ttft_s
from paceline.bench.record import Outcome
from paceline.bench.report_figure import MS, Figure, Json, View, axis, latency_axis, layout, safe, style

# A curve on a screen needs no more; the table's percentiles come from every value.
MAX_STEPS = 1000
# A log axis has no zero; shorter gaps, such as between tokens of one read, are drawn here.
SMALLEST_MS = 0.1


def cdfs(groups: Mapping[str, Sequence[View]]) -> tuple[Figure, ...]:
    """TTFT, ITL and E2E, one curve for each group of points."""
    figures = (_cdf(name, groups) for name in ("ttft", "itl", "e2e"))
    return tuple(figure for figure in figures if figure.traces)


def _cdf(name: str, groups: Mapping[str, Sequence[View]]) -> Figure:
    label = name.upper()
    curves = [(group, np.sort([v for view in views for v in _values(name, view)])) for group, views in groups.items()]
    traces = [_curve(index, group, values) for index, (group, values) in enumerate(curves) if values.size]
    ends = [max(float(values[index]) * MS, SMALLEST_MS) for _, values in curves if values.size for index in (0, -1)]
    return Figure(
        f"cdf-{name}",
        f"Distribution of {label}",
        f"Left is faster. The height of a curve is the share of {'gaps' if name == 'itl' else 'requests'} "
        f"whose {label} is at most what the axis says; a long flat tail at the top is what a few had to bear.",
        tuple(traces),
        layout(latency_axis(f"{label} (ms)", ends), axis("share", range=[0, 1.01], tickformat=".0%")),
    )


def _values(name: str, view: View) -> list[float]:
    """The same values that the percentiles of the table are made of."""
    holds, streams = view.window.holds, view.streams
    if name == "itl":
        return [gap for record in streams for gap in gaps_s(record, view.window)]
    if name == "e2e":
        return [e2e_s(r) for r in streams if r.outcome is Outcome.COMPLETED and holds(r.ended_s)]
    firsts = [ttft_s(record) for record in streams if record.event_times_s and holds(record.event_times_s[0])]
    return [first for first in firsts if first is not None]


def _curve(index: int, label: str, values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> Json:
    color, dash = style(index)
    # Starts on the floor, at the smallest value.
    ranks = np.unique(np.linspace(0, values.size - 1, min(values.size, MAX_STEPS)).astype(np.int64))
    return {
        "type": "scatter",
        "mode": "lines",
        "name": safe(label),
        "x": np.maximum(values[[0, *ranks]] * MS, SMALLEST_MS).round(4).tolist(),
        "y": [0.0, *((ranks + 1) / values.size).round(5).tolist()],
        "line": {"color": color, "dash": dash, "shape": "hv"},
        "hovertemplate": "%{y:.1%} within %{x:.4g} ms<extra>" + safe(label) + "</extra>",
    }
