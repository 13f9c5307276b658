"""The throughput–latency frontier: how much latency each further token a second costs, and where that stops paying."""

from collections.abc import Sequence

from paceline.bench.columns import written
from paceline.bench.measures import Summary
from paceline.bench.report_figure import COLORS, Figure, Json, View, axis, layout, log_axis, milliseconds, safe

QUANTILES = (("p50", COLORS[0], "solid", "circle"), ("p99", COLORS[1], "dash", "diamond"))


def frontiers(views: Sequence[View], knee: str | None) -> tuple[Figure, ...]:
    """Throughput against TTFT and against ITL; the points in the order of their load."""
    if len(views) < 2:
        return ()
    return tuple(_frontier(name, views, knee) for name in ("ttft", "itl"))


def _frontier(name: str, views: Sequence[View], knee: str | None) -> Figure:
    label = name.upper()
    ordered = sorted(views, key=_load)
    traces = [_line(name, ordered, *quantile) for quantile in QUANTILES]
    marked = next((view for view in views if view.point.label == knee), None)
    if marked is not None:
        traces.append(_knee(name, marked))
    return Figure(
        f"frontier-{name}",
        f"Throughput against {label}",
        f"Each mark is one load ({_unit(views)} beside it); further right is more throughput, further down less "
        f"latency. " + ("The star is the knee: the last load whose throughput is worth its latency." if marked else ""),
        tuple(traces),
        layout(
            axis("throughput (output tokens/s)", rangemode="tozero"),
            log_axis(f"{label} (ms)"),
        ),
    )


def _line(name: str, views: Sequence[View], quantile: str, color: str, dash: str, symbol: str) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": f"{name.upper()} {quantile}",
        "x": [view.summary.output_tokens_per_s for view in views],
        "y": [milliseconds(_latency(view.summary, name, quantile)) for view in views],
        "text": [_load_text(view) if quantile == "p99" else "" for view in views],
        "textposition": "top center",
        "textfont": {"size": 11},
        "hovertext": [describe(view) for view in views],
        "hovertemplate": "%{hovertext}<extra>" + quantile + "</extra>",
        "line": {"color": color, "dash": dash},
        "marker": {"color": color, "symbol": symbol, "size": 8},
    }


def _knee(name: str, view: View) -> Json:
    """The star on the p99 line. report.js finds it by its `meta`."""
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "knee",
        "name": f"knee: {safe(view.point.label)}",
        "x": [view.summary.output_tokens_per_s],
        "y": [milliseconds(_latency(view.summary, name, "p99"))],
        "customdata": [view.point.label],
        "hoverinfo": "skip",
        "marker": {"symbol": "star-open", "size": 20, "color": COLORS[5], "line": {"width": 2}},
    }


def _latency(summary: Summary, name: str, quantile: str) -> float | None:
    spread = summary.ttft_s if name == "ttft" else summary.itl_s
    if spread is None:
        return None
    return spread.p50 if quantile == "p50" else spread.p99


def _load(view: View) -> float:
    return view.point.concurrency or view.point.rate_per_s or 0.0


def _load_text(view: View) -> str:
    return f"{_load(view):g}" if _load(view) else ""


def _unit(views: Sequence[View]) -> str:
    return "requests at once" if any(view.point.concurrency for view in views) else "requests/s"


def describe(view: View) -> str:
    """A point in a few lines, for the hover."""
    summary = view.summary
    lines = [
        f"<b>{safe(view.point.label)}</b>",
        f"{summary.output_tokens_per_s:.1f} output tokens/s, {summary.requests_per_s:.2f} requests/s",
        f"goodput {summary.goodput_requests_per_s:.2f} requests/s",
        f"TTFT p50 {written(_latency(summary, 'ttft', 'p50'))}, p99 {written(_latency(summary, 'ttft', 'p99'))}",
        f"ITL p50 {written(_latency(summary, 'itl', 'p50'))}, p99 {written(_latency(summary, 'itl', 'p99'))}",
        safe(view.point.limited_by),
    ]
    return "<br>".join(line for line in lines if line)
