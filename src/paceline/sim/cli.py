"""`paceline simulate`: scenarios in, and the same table, file and report out as `paceline bench` gives."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.bench.columns import written
from paceline.bench.jsonl import write_result
from paceline.bench.options import check_out, command_line, with_fields
from paceline.bench.report import write_report
from paceline.bench.report_figure import Figure
from paceline.bench.result import Result
from paceline.bench.table import print_result
from paceline.bench.thinned import summarize_point
from paceline.sim.flags import check_flags
from paceline.sim.kept import MAX_CELLS
from paceline.sim.options import Options
from paceline.sim.recorded import about_recording, read_requests, simulate_recording
from paceline.sim.scenario import Scenario, Simulated, result_of, simulate
from paceline.sim.sweeps import goodput_figure, parse_sweep

app = typer.Typer(name="paceline simulate", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
@with_fields(Options)
def run(
    options: Options,
    sweep: Annotated[str | None, typer.Option(help="One knob, several values: batch=8,16,32.")] = None,
    replay: Annotated[
        Path | None, typer.Option(help="A recorded run as it was; with --costs, its requests under these flags.")
    ] = None,
) -> None:
    """Run the engine's scheduler on a virtual clock: what would another policy, load or fleet do?"""
    check_out(options.out)
    check_flags(options, replay, sweep)
    if replay is not None and options.costs is None:
        runs = simulate_recording(replay)
        finish(options, result_of(runs, options.targets, command_line(), about_recording(replay)))
        return
    scenario = options.scenario()
    about = options.about(scenario)
    if replay is not None:
        recorded = read_requests(replay)
        scenario = replace(scenario, trace=recorded.items(), requests=recorded, num_requests=None)
        about |= {"workload": about_recording(replay)["workload"]}
    if sweep is None:
        finish(options, result_of([simulate(scenario)], options.targets, command_line(), about))
        return
    knob, values, scenarios = parse_sweep(sweep, scenario)
    runs = [simulate(each, MAX_CELLS // len(scenarios)) for each in scenarios]
    result = result_of(runs, options.targets, command_line(), about)
    finish(options, result, [goodput_figure(result, scenarios, knob, values)])
    for run_of, each in zip(runs, scenarios, strict=True):
        typer.echo(told(run_of, each))


def finish(options: Options, result: Result, figures: Sequence[Figure] = ()) -> None:
    """File, report, table."""
    report = options.out.with_suffix(".html")
    write_result(options.out, result)
    write_report(report, result, "paceline simulate", figures)
    print_result(Console(), result)
    is_whole = all(point.kept_share == 1.0 for point in result.header.points)
    typer.echo(f"{options.out} ({'every request' if is_whole else 'requests kept'}), {report} (plots)")


def told(run: Simulated, scenario: Scenario) -> str:
    """A point of a sweep in one line, by its own targets."""
    summary = summarize_point(run.records, run.point, scenario.targets)
    tpot = written(None if summary.tpot_s is None else summary.tpot_s.p50)
    return (
        f"{scenario.label}: goodput {summary.goodput_requests_per_s:.2f} of {summary.requests_per_s:.2f} requests/s "
        f"({summary.share_met:.0%} in their targets), TPOT p50 {tpot}, {run.point.limited_by}"
    )
