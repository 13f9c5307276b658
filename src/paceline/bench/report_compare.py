"""One thing against another: sharing prefixes or not, server A or server B."""

from collections.abc import Sequence
from statistics import median

from paceline.bench.report_figure import MS, Figure, Json, View, axis, layout, log_axis, safe, style
from paceline.bench.result import PairedRatio

# A log axis names these; the finer ones only where no ratio is far from 1, as their names would overlap.
COARSE_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
FINE_TICKS = (0.7, 0.8, 0.9, 0.95, 1.05, 1.1, 1.2, 1.4)
FINE_RANGE = (0.6, 1.7)


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
            "Falls to the right where the server reuses what it has computed; flat where it doesn't. Medians "
            "of the rounds; bars from the least to the most.",
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
    known = [(view.point.shared_share, view.summary.ttft_s) for view in views]
    p50 = [(share, spread.p50 * MS) for share, spread in known if spread is not None]
    p99 = [(share, spread.p99 * MS) for share, spread in known if spread is not None]
    return [
        _line(index, f"{server} TTFT p50".strip(), p50, "solid"),
        _line(index, f"{server} TTFT p99".strip(), p99, "dash"),
    ]


def _throughput(index: int, server: str, views: Sequence[View]) -> Json:
    points = [(view.point.shared_share, view.summary.output_tokens_per_s) for view in views]
    return _line(index, server or "throughput", points, "solid")


def _line(index: int, name: str, points: Sequence[tuple[float | None, float]], dash: str) -> Json:
    """Medians of the rounds at each share, with a bar from the least to the most."""
    color, _ = style(index)
    rounds: dict[float, list[float]] = {}
    for share, value in points:
        assert share is not None, "only points with a share are drawn here"
        rounds.setdefault(share, []).append(value)
    middles = [median(values) for values in rounds.values()]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": safe(name),
        "x": list(rounds),
        "y": middles,
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [max(values) - middle for values, middle in zip(rounds.values(), middles, strict=True)],
            "arrayminus": [middle - min(values) for values, middle in zip(rounds.values(), middles, strict=True)],
        },
        "line": {"color": color, "dash": dash},
        "hovertemplate": "%{x:.0%} shared: %{y:.4g}<extra>" + safe(name) + "</extra>",
    }


def ratio_figure(ratios: Sequence[PairedRatio]) -> Figure | None:
    """The paired ratios with their intervals; an interval that holds 1 shows no difference."""
    if not ratios:
        return None
    pairs = {(ratio.label, ratio.baseline) for ratio in ratios}
    names = [_name(ratio, is_long=len(pairs) > 1) for ratio in ratios]
    title = "Paired ratios" if len(pairs) > 1 else f"Paired ratios: {ratios[0].label} / {ratios[0].baseline}"
    is_close = all(FINE_RANGE[0] < value < FINE_RANGE[1] for ratio in ratios for value in ratio.pairs)
    tick_values = sorted(COARSE_TICKS + (FINE_TICKS if is_close else ()))
    ticks: Json = {"tickvals": tick_values, "ticktext": [f"{tick:g}×" for tick in tick_values]}
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
        title,
        "How many times the measure of the first is that of the second, from runs that alternate. Where the bar "
        "crosses 1, the runs show no difference.",
        (_medians(names, ratios), _pairs(names, ratios)),
        layout(
            {**log_axis("ratio"), **ticks},
            {"autorange": "reversed", "type": "category", "tickfont": {"size": 11}},
            height=140 + (60 if len(pairs) > 1 else 45) * len(ratios),
            shapes=[one],
        ),
    )


def _name(ratio: PairedRatio, is_long: bool) -> str:
    if not is_long:
        return safe(ratio.measure)
    return f"<b>{safe(ratio.measure)}</b><br>{safe(ratio.label)}<br>/ {safe(ratio.baseline)}"


def _medians(names: Sequence[str], ratios: Sequence[PairedRatio]) -> Json:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "median of the pairs, with its interval",
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
