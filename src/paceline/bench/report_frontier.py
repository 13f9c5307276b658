"""The throughput–latency frontier: how much latency each further token a second costs, and where that stops paying."""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.bench.columns import written
from paceline.bench.measures import Summary
from paceline.bench.report_figure import (
    COLORS,
    Figure,
    Json,
    View,
    axis,
    latency_axis,
    layout,
    milliseconds,
    safe,
    style,
)

QUANTILES = ("p50", "p99")
SYMBOLS = {"p50": "circle", "p99": "diamond"}
DASHES = {"p50": "solid", "p99": "dash"}


@dataclass(frozen=True, slots=True)
class Mark:
    """The point to bring out: its label, what it is called and why it is special."""

    label: str
    name: str
    meaning: str


def frontiers(views: Sequence[View], mark: Mark | None) -> tuple[Figure, ...]:
    """Throughput against TTFT and against ITL, one pair of lines a server; points in the order of their load."""
    if len(views) < 2:
        return ()
    return tuple(_frontier(name, views, mark) for name in ("ttft", "itl"))


def share_figure(views: Sequence[View], mark: Mark | None) -> Figure:
    """Share of the requests that met the targets, by the rate asked for."""
    ordered = sorted(views, key=_load)
    line: Json = {
        "type": "scatter",
        "mode": "lines+markers",
        "name": "share that met the targets",
        "x": [view.point.rate_per_s for view in ordered],
        "y": [view.summary.share_met for view in ordered],
        "hovertext": [describe(view) for view in ordered],
        "hovertemplate": "%{hovertext}<extra></extra>",
        "line": {"color": COLORS[0]},
        "marker": {"size": 8},
    }
    best = next((view for view in views if mark is not None and view.point.label == mark.label), None)
    stars = [_star(mark, best.point.rate_per_s, best.summary.share_met)] if mark is not None and best else []
    return Figure(
        "share",
        "Requests that met their targets",
        "Each mark is one rate; failures and rejections count as misses. " + (mark.meaning if mark else ""),
        (line, *stars),
        layout(
            axis("requests/s asked for", rangemode="tozero"),
            axis("share that met every target", range=[0, 1.05], tickformat=".0%"),
        ),
    )


def _frontier(name: str, views: Sequence[View], mark: Mark | None) -> Figure:
    label = name.upper()
    servers = list(dict.fromkeys(view.point.server for view in views))
    traces: list[Json] = []
    for number, server in enumerate(servers):
        ordered = sorted((view for view in views if view.point.server == server), key=_load)
        prefix = f"{safe(server)} " if len(servers) > 1 else ""
        color = {quantile: style(number if len(servers) > 1 else at)[0] for at, quantile in enumerate(QUANTILES)}
        traces += [_line(name, ordered, q, f"{prefix}{label} {q}", color[q]) for q in QUANTILES]
    marked = next((view for view in views if mark is not None and view.point.label == mark.label), None)
    if mark is not None and marked is not None:
        traces.append(_star(mark, marked.summary.output_tokens_per_s, _ms(marked, name, "p99")))
    return Figure(
        f"frontier-{name}",
        f"Throughput against {label}",
        f"Each mark is one load ({_unit(views)} beside it); further right is more throughput, further down less "
        f"latency. {mark.meaning if mark else ''}",
        tuple(traces),
        layout(
            axis("throughput (output tokens/s)", rangemode="tozero"),
            latency_axis(f"{label} (ms)", (_ms(view, name, quantile) for view in views for quantile in QUANTILES)),
        ),
    )


def _line(name: str, views: Sequence[View], quantile: str, title: str, color: str) -> Json:
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": title,
        "x": [view.summary.output_tokens_per_s for view in views],
        "y": [_ms(view, name, quantile) for view in views],
        "text": [_load_text(view) if quantile == "p99" else "" for view in views],
        "textposition": "top center",
        "textfont": {"size": 11},
        "hovertext": [describe(view) for view in views],
        "hovertemplate": "%{hovertext}<extra>" + quantile + "</extra>",
        "line": {"color": color, "dash": DASHES[quantile]},
        "marker": {"color": color, "symbol": SYMBOLS[quantile], "size": 8},
    }


def _star(mark: Mark, x: float | None, y: float | None) -> Json:
    """The star, on the p99 line of a frontier. report.js finds it by its `meta`."""
    return {
        "type": "scatter",
        "mode": "markers",
        "meta": "knee",
        "name": f"{mark.name}: {safe(mark.label)}",
        "x": [x],
        "y": [y],
        "customdata": [mark.label],
        "hoverinfo": "skip",
        "marker": {"symbol": "star-open", "size": 20, "color": COLORS[5], "line": {"width": 2}},
    }


def _latency(summary: Summary, name: str, quantile: str) -> float | None:
    spread = summary.ttft_s if name == "ttft" else summary.itl_s
    if spread is None:
        return None
    return spread.p50 if quantile == "p50" else spread.p99


def _ms(view: View, name: str, quantile: str) -> float | None:
    return milliseconds(_latency(view.summary, name, quantile))


def _load(view: View) -> float:
    return view.point.concurrency or view.point.rate_per_s or 0.0


def _load_text(view: View) -> str:
    return f"{_load(view):.3g}" if _load(view) else ""


def _unit(views: Sequence[View]) -> str:
    return "requests at once" if any(view.point.concurrency for view in views) else "requests/s"


def describe(view: View) -> str:
    """A point in a few lines, for the hover."""
    summary = view.summary
    lines = [
        f"<b>{safe(view.point.label)}</b>",
        f"{summary.output_tokens_per_s:.1f} output tokens/s, {summary.requests_per_s:.2f} requests/s",
        f"goodput {summary.goodput_requests_per_s:.2f} requests/s, {summary.share_met:.0%} met the targets",
        f"TTFT p50 {written(_latency(summary, 'ttft', 'p50'))}, p99 {written(_latency(summary, 'ttft', 'p99'))}",
        f"ITL p50 {written(_latency(summary, 'itl', 'p50'))}, p99 {written(_latency(summary, 'itl', 'p99'))}",
        safe(view.point.limited_by),
    ]
    return "<br>".join(line for line in lines if line)
