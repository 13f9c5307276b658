"""Several results of one kind as one, so that one report shows them side by side: chunked and not, server A and B."""

from collections.abc import Mapping
from dataclasses import replace

from paceline.bench.result import Header, Result
from paceline.errors import ConfigError


def merge_results(results: Mapping[str, Result]) -> Result:
    """One result from those named; every point's label and server begin with its name. A lone one stays as it is."""
    (_, first), *rest = results.items()
    if not rest:
        return first
    for name, result in results.items():
        if result.header.experiment is not first.header.experiment:
            raise ConfigError(
                f"{name}: is a {result.header.experiment} and can't be shown with a {first.header.experiment}; "
                "make a report of each"
            )
    named = [_renamed(name, result) for name, result in results.items()]
    return Result(
        _merged_header(first.header, {name: result.header for name, result in zip(results, named, strict=True)}),
        tuple(record for result in named for record in result.records),
    )


def _renamed(name: str, result: Result) -> Result:
    points = tuple(replace(point, label=f"{name}: {point.label}", server=name) for point in result.header.points)
    records = tuple(replace(record, label=f"{name}: {record.label}") for record in result.records)
    return Result(replace(result.header, points=points), records)


def _merged_header(first: Header, headers: Mapping[str, Header]) -> Header:
    """Facts that differ are told apart by name. Knees are each result's own: none is the merged one's."""
    return replace(
        first,
        command="\n".join(header.command for header in headers.values()),
        versions=_facts({name: header.versions for name, header in headers.items()}),
        server=_facts({name: header.server for name, header in headers.items()}),
        machine=_facts({name: header.machine for name, header in headers.items()}),
        workload=_facts({name: header.workload for name, header in headers.items()}),
        points=tuple(point for header in headers.values() for point in header.points),
        ratios=tuple(ratio for header in headers.values() for ratio in header.ratios),
        knee=None,
    )


def _facts(facts: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    values = list(facts.values())
    if all(value == values[0] for value in values):
        return dict(values[0])
    return {f"{name}, {key}": value for name, part in facts.items() for key, value in part.items()}
