"""When each request waited, when its first token came and how long it streamed."""

from collections.abc import Sequence

from paceline.bench.record import Outcome, RequestRecord
from paceline.bench.report_figure import COLORS, Figure, Json, View, axis, layout, safe

# More bars than this can't be told apart.
MAX_BARS = 150
MAX_TIMELINES = 3


def timelines(views: Sequence[View], knee: str | None) -> tuple[Figure, ...]:
    """Timelines of the lightest load, the knee and the heaviest."""
    chosen = [view for view in views if view.records]
    if len(chosen) > MAX_TIMELINES:
        middle = [view for view in chosen[1:-1] if view.point.label == knee]
        chosen = [chosen[0], *middle, chosen[-1]]
    return tuple(_timeline(index, view) for index, view in enumerate(chosen))


def _timeline(index: int, view: View) -> Figure:
    ordered = sorted(view.records, key=lambda record: record.intended_s)
    shown = ordered[:MAX_BARS]
    part = "" if len(shown) == len(ordered) else f" The first {len(shown)} of {len(ordered)} requests."
    window = {
        "type": "rect",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": view.point.window_start_s,
        "x1": view.point.window_end_s,
        "line": {"width": 1, "dash": "dot", "color": COLORS[7]},
        "layer": "below",
    }
    return Figure(
        f"timeline-{index}",
        f"Requests over time: {view.point.label}",
        "One line a request: late is the wait between when it was due and when the client could send it, then queue "
        f"and prefill at the server until the first token, then decode. The dotted frame is the measured window.{part}",
        tuple(_phases(shown)),
        layout(
            axis("time (s)"),
            axis("request", autorange="reversed"),
            height=max(260, min(700, 120 + 8 * len(shown))),
            barmode="overlay",
            bargap=0.2,
            shapes=[window],
        ),
    )


def _phases(records: Sequence[RequestRecord]) -> list[Json]:
    completed = [record for record in records if record.event_times_s]
    failed = [record for record in records if record.outcome is not Outcome.COMPLETED]
    row = {id(record): number for number, record in enumerate(records)}
    first = {id(record): record.event_times_s[0] for record in completed}
    bars = [
        ("late", COLORS[7], [(row[id(r)], r.intended_s, r.sent_s) for r in records]),
        ("queue and prefill", COLORS[1], [(row[id(r)], r.sent_s, first.get(id(r), r.ended_s)) for r in records]),
        ("decode", COLORS[0], [(row[id(r)], first[id(r)], r.event_times_s[-1]) for r in completed]),
    ]
    traces = [_bars(name, color, spans) for name, color, spans in bars]
    return [*traces, _failures(failed, [row[id(record)] for record in failed])] if failed else traces


def _bars(name: str, color: str, spans: Sequence[tuple[int, float, float]]) -> Json:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [number for number, _, _ in spans],
        "base": [start for _, start, _ in spans],
        "x": [max(0.0, end - start) for _, start, end in spans],
        "marker": {"color": color},
        "hovertemplate": "request %{y}: " + name + " for %{x:.3f} s from %{base:.3f} s<extra></extra>",
    }


def _failures(failed: Sequence[RequestRecord], rows: Sequence[int]) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "not completed",
        "x": [record.ended_s for record in failed],
        "y": list(rows),
        "text": [safe(f"{record.outcome}: {record.error or record.status or ''}"[:200]) for record in failed],
        "hovertemplate": "request %{y}: %{text}<extra></extra>",
        "marker": {"symbol": "x", "size": 9, "color": COLORS[5]},
    }
