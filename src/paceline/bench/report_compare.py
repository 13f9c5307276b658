"""One thing against another: sharing prefixes or not, server A or server B."""

from collections.abc import Sequence

from paceline.bench.report_figure import Figure, Json, View, axis, layout, log_axis, milliseconds, safe, style
from paceline.bench.result import PairedRatio

RATIO_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0)


def prefix_figures(views: Sequence[View]) -> tuple[Figure, ...]:
    """Shared share of the prompts against TTFT and against throughput; one line a server."""
    groups: dict[str, list[View]] = {}
    for view in sorted(views, key=lambda view: view.point.shared_share or 0.0):
        if view.point.shared_share is not None:
            groups.setdefault(view.point.server, []).append(view)
    if not groups:
        return ()
    share = axis("share of the prompt that is shared", tickformat=".0%", range=[-0.03, 1.03])
    ttft = [trace for index, group in enumerate(groups.items()) for trace in _ttft(index, *group)]
    throughput = [_throughput(index, *group) for index, group in enumerate(groups.items())]
    return (
        Figure(
            "prefix-ttft",
            "Shared prefix against TTFT",
            "Falls to the right where the server reuses what it has computed; flat where it doesn't.",
            tuple(ttft),
            layout(share, axis("TTFT (ms)", rangemode="tozero")),
        ),
        Figure(
            "prefix-throughput",
            "Shared prefix against throughput",
            "Rises to the right where computing less prefill leaves time for decode.",
            tuple(throughput),
            layout(share, axis("output tokens/s", rangemode="tozero")),
        ),
    )


def _ttft(index: int, server: str, views: Sequence[View]) -> list[Json]:
    spreads = [(view, view.summary.ttft_s) for view in views]
    known = [(view, summary) for view, summary in spreads if summary is not None]
    return [
        _line(index, f"{server} TTFT p50".strip(), [(v, milliseconds(s.p50)) for v, s in known], "solid"),
        _line(index, f"{server} TTFT p99".strip(), [(v, milliseconds(s.p99)) for v, s in known], "dash"),
    ]


def _throughput(index: int, server: str, views: Sequence[View]) -> Json:
    points = [(view, view.summary.output_tokens_per_s) for view in views]
    return _line(index, server or "throughput", points, "solid")


def _line(index: int, name: str, points: Sequence[tuple[View, float | None]], dash: str) -> Json:
    color, _ = style(index)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(name),
        "x": [view.point.shared_share for view, _ in points],
        "y": [value for _, value in points],
        "line": {"color": color, "dash": dash},
        "hovertemplate": "%{x:.0%} shared: %{y:.4g}<extra>" + safe(name) + "</extra>",
    }


def ratio_figure(ratios: Sequence[PairedRatio]) -> Figure | None:
    """The paired ratios with their intervals; an interval that holds 1 shows no difference."""
    if not ratios:
        return None
    names = [safe(f"{ratio.label} / {ratio.baseline}: {ratio.measure}") for ratio in ratios]
    ticks: Json = {"tickvals": RATIO_TICKS, "ticktext": [f"{tick:g}×" for tick in RATIO_TICKS]}
    one: Json = {
        "type": "line",
        "x0": 1,
        "x1": 1,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"dash": "dot", "width": 1},
    }
    return Figure(
        "ratios",
        "Paired ratios",
        "How many times the measure of the first is that of the second, from runs that alternate. Where the bar "
        "crosses 1, the runs show no difference.",
        (_means(names, ratios), _pairs(names, ratios)),
        layout(
            {**log_axis("ratio"), **ticks},
            {"autorange": "reversed", "type": "category"},
            height=140 + 45 * len(ratios),
            shapes=[one],
        ),
    )


def _means(names: Sequence[str], ratios: Sequence[PairedRatio]) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "mean of the pairs, with its interval",
        "x": [ratio.ratio for ratio in ratios],
        "y": list(names),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [ratio.high - ratio.ratio for ratio in ratios],
            "arrayminus": [ratio.ratio - ratio.low for ratio in ratios],
            "thickness": 2,
            "width": 6,
        },
        "text": [f"{len(ratio.pairs)} pairs, {ratio.low:.3f} to {ratio.high:.3f}" for ratio in ratios],
        "hovertemplate": "%{y}<br>%{x:.3f} (%{text})<extra></extra>",
        "marker": {"color": style(0)[0], "size": 11},
    }


def _pairs(names: Sequence[str], ratios: Sequence[PairedRatio]) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "single pairs",
        "x": [pair for ratio in ratios for pair in ratio.pairs],
        "y": [name for name, ratio in zip(names, ratios, strict=True) for _ in ratio.pairs],
        "hovertemplate": "%{x:.3f}<extra>one pair</extra>",
        "marker": {"color": style(1)[0], "size": 8, "symbol": "line-ns-open", "line": {"width": 2}},
    }
