"""`bench compare` of results that were recorded before: the same ratios, from points at the same load."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paceline.bench.alternate import COMPARED
from paceline.bench.endpoint import BenchError
from paceline.bench.measures import Summary
from paceline.bench.merge import merge_results
from paceline.bench.pairs import paired_ratio
from paceline.bench.result import PairedRatio, Point, Result
from paceline.bench.thinned import summarize_point

Load = tuple[int | None, float | None, float | None]


def compare_recorded(results: Mapping[str, Result]) -> Result:
    """All as one result, each divided by the first at the loads that both have, in the order they were measured. They
    were not measured in turn, so what else changed between them is in the ratios too; the reader must know.
    """
    if len(results) < 2:
        raise BenchError("compare needs at least two results, or two servers")
    (base_name, base), *others = results.items()
    ratios = [ratio for name, other in others for ratio in ratios_between(name, other, base_name, base)]
    if not ratios:
        raise BenchError(f"no load was measured both in {base_name} and in another result")
    merged = merge_results(results)
    note = "recorded at different times, not in turn: what else changed in between is part of every ratio"
    points = tuple(replace(point, warnings=(*point.warnings, note)) for point in merged.header.points)
    return replace(merged, header=replace(merged.header, points=points, ratios=tuple(ratios)))


def ratios_between(name: str, other: Result, base_name: str, base: Result) -> list[PairedRatio]:
    """Each measure at each load, repetition by repetition."""
    ours, theirs = by_load(other), by_load(base)
    found = []
    for load, summaries in ours.items():
        bases = theirs.get(load, [])
        num = min(len(summaries), len(bases))
        for measure, value_of in COMPARED if num else ():
            ratio = paired_ratio(
                measure,
                f"{name}, {load_name(load)}",
                f"{base_name}, {load_name(load)}",
                [value_of(summary) for summary in summaries[:num]],
                [value_of(summary) for summary in bases[:num]],
            )
            found += [] if ratio is None else [ratio]
    return found


def by_load(result: Result) -> dict[Load, list[Summary]]:
    """The measures of every point, those at the same load together."""
    found: dict[Load, list[Summary]] = {}
    for point in result.header.points:
        summary = summarize_point(result.records_of(point), point, result.header.targets)
        found.setdefault(load_of(point), []).append(summary)
    return found


def load_of(point: Point) -> Load:
    """What makes two points comparable."""
    return point.concurrency, point.rate_per_s, point.shared_share


def load_name(load: Load) -> str:
    """For a person."""
    names: Sequence[str] = ("concurrency {}", "{:.3g} requests/s", "{:.0%} shared")
    return ", ".join(name.format(value) for name, value in zip(names, load, strict=True) if value is not None)
