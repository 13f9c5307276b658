"""What-if sweeps: one knob of a scenario takes several values, and the goodput of each is a point of a curve."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from paceline.bench.options import parse_seconds
from paceline.bench.report_figure import COLORS, Figure, Json, axis, layout, views_of
from paceline.bench.result import Result
from paceline.bench.thinned import summarize_point
from paceline.config import check_option, parse_count
from paceline.errors import ConfigError
from paceline.sim.policies import Order, PolicyKind
from paceline.sim.router import RouterKind
from paceline.sim.scenario import MAX_REPLICAS, Scenario, at_load
from paceline.sim.speculation_option import checked_drafts

Change = Callable[[Scenario, str], Scenario]


def _count(text: str) -> int:
    return parse_count("--sweep", text)


def _replicas(text: str) -> int:
    number = _count(text)
    check_option("--sweep (replicas)", number, 1, MAX_REPLICAS)
    return number


def _drafts(text: str) -> int:
    return 0 if text == "0" else checked_drafts("--sweep draft", _number(text))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"--sweep: {text!r} is not a number") from None


def _named(kind: type[PolicyKind] | type[Order] | type[RouterKind], text: str) -> str:
    if text not in list(kind):
        raise ConfigError(f"--sweep: {text!r} is not one of {', '.join(kind)}")
    return text


KNOBS: Mapping[str, Change] = {
    "batch": lambda s, text: replace(s, policy=replace(s.policy, batch=_count(text))),
    "chunk": lambda s, text: replace(s, policy=replace(s.policy, chunk=_count(text))),
    "pool": lambda s, text: replace(s, policy=replace(s.policy, pool_tokens=_count(text))),
    "order": lambda s, text: replace(s, policy=replace(s.policy, order=Order(_named(Order, text)))),
    "policy": lambda s, text: replace(s, policy=replace(s.policy, kind=PolicyKind(_named(PolicyKind, text)))),
    "replicas": lambda s, text: replace(s, num_replicas=_replicas(text)),
    "prefill-replicas": lambda s, text: replace(s, num_prefill=_replicas(text)),
    "router": lambda s, text: replace(s, router=RouterKind(_named(RouterKind, text))),
    "rate": lambda s, text: at_load(s, rate_per_s=_number(text)),
    "concurrency": lambda s, text: at_load(s, concurrency=_count(text)),
    "draft": lambda s, text: replace(s, speculation=replace(s.speculation, num_drafts=_drafts(text))),
    "ttft": lambda s, text: replace(s, targets=replace(s.targets, ttft_s=parse_seconds("--sweep ttft", text))),
    "itl": lambda s, text: replace(s, targets=replace(s.targets, itl_s=parse_seconds("--sweep itl", text))),
}


OF_ARRIVALS = ("rate", "concurrency")


def parse_sweep(text: str, scenario: Scenario) -> tuple[str, list[str], list[Scenario]]:
    """`batch=8,16,32`: the knob, its values as written, the scenario with each. Raises ConfigError."""
    knob, equals, rest = text.partition("=")
    if knob not in KNOBS or not equals:
        raise ConfigError(f"--sweep {text!r}: expected KNOB=V1,V2,… with a knob of {', '.join(KNOBS)}")
    if knob == "prefill-replicas" and scenario.link is None:
        raise ConfigError("--sweep prefill-replicas: give --prefill-replicas as well, to have two pools")
    if knob == "draft" and scenario.speculation.num_drafts == 0:
        raise ConfigError("--sweep draft: give --speculation as well, for the chance that a draft is kept and its cost")
    if scenario.trace and knob in OF_ARRIVALS:
        raise ConfigError(f"--sweep {knob}: a trace has its own arrivals; use --speed")
    values = list(dict.fromkeys(value.strip() for value in rest.split(",")))
    return knob, values, [replace(KNOBS[knob](scenario, value), label=f"{knob} {value}") for value in values]


def goodput_figure(result: Result, scenarios: Sequence[Scenario], knob: str, values: Sequence[str]) -> Figure:
    """Goodput and throughput against the swept value; the target of each point is its scenario's."""
    summaries = [
        summarize_point(view.records, view.point, scenario.targets)
        for view, scenario in zip(views_of(result), scenarios, strict=True)
    ]
    lines: tuple[Json, ...] = tuple(
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(values),
            "y": heights,
            "line": {"color": COLORS[number], "dash": dash},
            "marker": {"size": 8},
        }
        for number, (name, heights, dash) in enumerate(
            (
                ("goodput (met every target)", [summary.goodput_requests_per_s for summary in summaries], "solid"),
                ("completed", [summary.requests_per_s for summary in summaries], "dash"),
            )
        )
    )
    return Figure(
        "goodput",
        f"Goodput against {knob}",
        "Where the two lines part, requests are answered but miss their targets.",
        lines,
        layout(axis(knob, type="category"), axis("requests/s", rangemode="tozero")),
    )
