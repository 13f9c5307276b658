"""The plan as a page: TPOT and throughput against the batch, with ridge point, target and what fits."""

from collections.abc import Sequence
from math import log10
from pathlib import Path

from paceline.bench.options import command_line
from paceline.bench.report_figure import Figure, Json, axis, layout, log_axis, style
from paceline.bench.report_page import Page, Table, render
from paceline.costs.units import sized, timed
from paceline.errors import ConfigError
from paceline.planning.answer import Answer, as_json
from paceline.planning.table import effect_rows, headline, subject

MS = 1e3


def write_page(path: Path, page: Page) -> None:
    """Write the page. Raises ConfigError where it can't be."""
    try:
        path.write_text(render(page), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--html {path}: {error.strerror}") from None


def page_of(found: Answer) -> Page:
    """The page of an answer."""
    plan, estimator = found.plan, found.question.replica.estimator
    return Page(
        title=f"Plan for {estimator.model.name}",
        summary=f"{headline(found)}. {subject(found)}.",
        command=command_line(),
        warnings=() if plan.refusal is None else (plan.refusal,),
        facts={"Replica": _replica_facts(found), "Targets": _target_facts(found)},
        table=Table(("change", "requests/s a card", "cards", "TPOT", "per 1M tokens"), tuple(effect_rows(found))),
        percentiles=_curve_table(found),
        notes=plan.reasons,
        figures=(tpot_figure(found), throughput_figure(found)) if found.curve else (),
        data={"plan": dict(as_json(found))},
        heading="What would change it, and why the answer is what it is",
        details="TPOT and throughput over batches",
    )


def _replica_facts(found: Answer) -> dict[str, str]:
    estimator, memory = found.question.replica.estimator, found.plan.memory
    return {
        "cards": f"{estimator.num_cards} × {estimator.hardware.name}",
        "weights": sized(memory.weights_bytes),
        "left for KV": sized(max(0.0, memory.kv_bytes)),
        "sequences": f"{memory.num_sequences:,}",
        "ridge batch": f"{estimator.ridge_batch:,.0f}",
    }


def _target_facts(found: Answer) -> dict[str, str]:
    targets = found.question.targets
    facts = {"TTFT": targets.ttft_s, "TPOT": targets.tpot_s}
    return {name: timed(value) for name, value in facts.items() if value is not None} | {"binds": found.plan.binds}


def _curve_table(found: Answer) -> Table:
    heads = ("batch", "decode step", "TPOT with prefill", "requests/s", "output tokens/s", "TTFT p99")
    rows = tuple(
        (
            f"{point.batch:,}",
            timed(point.decode_step_s),
            timed(point.tpot_s),
            f"{point.rate_per_s:.4g}",
            f"{point.streams_tokens_per_s:,.0f}",
            timed(point.ttft_p99_s),
        )
        for point in found.curve
    )
    return Table(heads, rows)


def tpot_figure(found: Answer) -> Figure:
    """TPOT against the batch."""
    batches = [point.batch for point in found.curve]
    traces = [
        _line("decode alone", batches, [point.decode_step_s * MS for point in found.curve], 0),
        _line("with prefill's share", batches, [point.tpot_s * MS for point in found.curve], 1),
    ]
    target_s = found.question.targets.tpot_s
    if target_s is not None:
        traces.append(_line("target", [1, batches[-1]], [target_s * MS] * 2, 5, dash="dash"))
    return Figure(
        "plan-tpot",
        "TPOT against batch",
        "Flat where reading the weights is what a step waits for; rising as KV and, past the ridge point, arithmetic "
        "are added. Prefill of the requests that keep such a batch running takes its share of the time.",
        tuple(traces),
        layout(
            log_axis("sequences at once"),
            log_axis("TPOT (ms)"),
            shapes=[_upright(x) for x in _marks(found).values()],
            annotations=_labels(found),
        ),
    )


def throughput_figure(found: Answer) -> Figure:
    """Throughput against the batch."""
    batches = [point.batch for point in found.curve]
    alone = [point.batch / point.decode_step_s for point in found.curve]
    shared = [point.streams_tokens_per_s for point in found.curve]
    return Figure(
        "plan-throughput",
        "Throughput against batch",
        "Output tokens of all streams of a replica. The gap between the lines is what prefill takes.",
        (_line("decode alone", batches, alone, 0), _line("with prefill's share", batches, shared, 1)),
        layout(
            log_axis("sequences at once"),
            axis("output tokens/s", rangemode="tozero"),
            shapes=[_upright(x) for x in _marks(found).values()],
            annotations=_labels(found),
        ),
    )


def _marks(found: Answer) -> dict[str, float]:
    """Batches worth a line."""
    marks = {"ridge point": found.question.replica.estimator.ridge_batch}
    if found.plan.memory.num_sequences:
        marks["memory"] = float(found.plan.memory.num_sequences)
    if found.plan.capacity is not None:
        marks["capacity"] = float(found.plan.capacity.batch)
    if found.plan.fleet is not None:
        marks["this load"] = float(found.plan.fleet.point.batch)
    return marks


def _upright(x: float) -> Json:
    return {
        "type": "line",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": "#8a8a8a", "width": 1, "dash": "dot"},
    }


def _labels(found: Answer) -> list[Json]:
    """Names of the lines, staggered; plotly takes positions on a logarithmic axis as powers of ten."""
    return [
        {"x": log10(x), "y": 0.97 - 0.08 * index, "yref": "paper", "text": name, "showarrow": False, "xanchor": "left"}
        for index, (name, x) in enumerate(sorted(_marks(found).items(), key=lambda mark: mark[1]))
    ]


def _line(name: str, x: Sequence[float], y: Sequence[float], color: int, dash: str = "solid") -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": {"color": style(color)[0], "dash": dash},
    }
