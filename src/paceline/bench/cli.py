"""`paceline bench …`: one command an experiment. Each ends with a table, a result file and a report beside it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.bench.alternate import measure_compare, measure_prefix
from paceline.bench.columns import written
from paceline.bench.endpoint import BenchError
from paceline.bench.experiment import Held, Settings, Spot, letter, measure_run, open_caller, result_of
from paceline.bench.goodput import measure_goodput
from paceline.bench.hol import Stall, measure_hol, stall_of
from paceline.bench.jsonl import read_result, write_result
from paceline.bench.load import Caller
from paceline.bench.measures import Window
from paceline.bench.options import Common, check_out, with_common
from paceline.bench.recorded import compare_recorded
from paceline.bench.replay import measure_replay, read_trace
from paceline.bench.report import write_report
from paceline.bench.report_command import report
from paceline.bench.result import Experiment, Result
from paceline.bench.sweep import doublings, measure_rates, measure_sweep
from paceline.bench.table import Progress, print_result
from paceline.workload.arrivals import ClosedLoop
from paceline.workload.scaling import Scaling
from paceline.workload.specs import parse_arrivals, parse_prefix, parse_sessions

LENGTHS = "256/64"
STREAM_LENGTHS = "32/512"
PREFIX_LENGTHS = "1024/32"
HERE = "http://127.0.0.1:8000"
INTERRUPTED_EXIT_CODE = 130

app = typer.Typer(
    name="paceline bench",
    help="Measure any OpenAI-compatible server.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(report)

Url = Annotated[str, typer.Argument(help="The server.")]
Measure = Callable[[Sequence[Caller], Settings], Awaitable[Result]]


@app.command()
@with_common
def run(
    common: Common,
    url: Url = HERE,
    arrivals: Annotated[str, typer.Option(help="closed:concurrency=8, poisson:rate=4, …")] = "closed:concurrency=8",
    prefix: Annotated[str, typer.Option(help="What prompts share: none, system:tokens=512, …")] = "none",
    sessions: Annotated[str, typer.Option(help="none, or fixed:turns=4,think=2, …")] = "none",
    max_connections: Annotated[int | None, typer.Option(min=1, help="Bound; waiting for one counts.")] = None,
) -> None:
    """Hold one load."""
    chosen = parse_arrivals(arrivals)
    settings = common.settings(LENGTHS, chosen)
    workload = replace(settings.workload, prefix=parse_prefix(prefix), sessions=parse_sessions(sessions))
    about = settings.about | {"arrivals": arrivals, "prefix": prefix, "sessions": sessions}
    settings = replace(settings, workload=workload, max_connections=max_connections, about=about)
    spot = Spot(arrivals, concurrency=chosen.concurrency if isinstance(chosen, ClosedLoop) else None)
    finish(
        common, measured(common, Experiment.RUN, [url], settings, lambda callers, s: measure_run(callers[0], s, spot))
    )


@app.command()
@with_common
def sweep(
    common: Common,
    url: Url = HERE,
    concurrency: Annotated[str, typer.Option(help="FIRST-LAST, doubling, or a list such as 1,4,6.")] = "1-64",
    rates: Annotated[
        str | None, typer.Option(help="Rates such as 1,2,4 instead, or auto: until it is too much.")
    ] = None,
) -> None:
    """Throughput against latency as the load grows, with the knee."""
    settings = common.settings(LENGTHS)
    concurrencies = parse_concurrencies(concurrency)
    numbers = [] if rates in (None, "auto") else parse_numbers("--rates", rates or "")

    def measure(callers: Sequence[Caller], settings: Settings) -> Awaitable[Result]:
        if rates is None:
            return measure_sweep(callers[0], settings, concurrencies)
        return measure_rates(callers[0], settings, numbers)

    finish(common, measured(common, Experiment.SWEEP, [url], settings, measure))


@app.command()
@with_common
def goodput(
    common: Common,
    url: Url = HERE,
    share: Annotated[float, typer.Option(help="Of all requests that must meet every target.")] = 0.95,
) -> None:
    """The largest rate at which requests meet their targets (--ttft, --itl, --e2e)."""
    settings = common.settings(LENGTHS)
    result = measured(
        common, Experiment.GOODPUT, [url], settings, lambda callers, s: measure_goodput(callers[0], s, share)
    )
    finish(common, result)
    best = result.header.knee
    typer.echo(
        f"largest rate with {share:.0%} of requests in their targets: {best or 'none, even the lightest load missed'}"
    )


@app.command()
@with_common
def hol(
    common: Common,
    url: Url = HERE,
    streams: Annotated[int, typer.Option(min=1, help="Short streams that run all the time.")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Length of the prompt that joins them.")] = 4000,
) -> None:
    """Head-of-line blocking: what one long prompt does to running streams."""
    settings = common.settings(STREAM_LENGTHS)
    result = measured(
        common, Experiment.HOL, [url], settings, lambda callers, s: measure_hol(callers[0], s, streams, prompt_tokens)
    )
    finish(common, result)
    [point] = result.header.points
    stall = stall_of(result.records, point.injected, Window(point.window_start_s, point.window_end_s))
    if stall is not None:
        typer.echo(told(stall))


@app.command()
@with_common
def prefix(
    common: Common,
    urls: Annotated[list[str] | None, typer.Argument(help="One server, or several to compare.")] = None,
    shares: Annotated[str, typer.Option(help="Shares of the prompt that all have in common.")] = "0,0.5,0.9",
    concurrency: Annotated[int, typer.Option(min=1, help="Requests at a time.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured, in turn.")] = 6,
) -> None:
    """Shared prefixes against TTFT and throughput."""
    numbers = parse_numbers("--shares", shares)
    settings = common.settings(PREFIX_LENGTHS)
    measure = partial(measure_prefix, concurrency=concurrency, shares=numbers, num_rounds=rounds)
    finish(common, measured(common, Experiment.PREFIX, urls or [HERE], settings, measure))


@app.command()
@with_common
def compare(
    common: Common,
    subjects: Annotated[list[str], typer.Argument(metavar="A B …", help="Servers, or result files.")],
    concurrency: Annotated[str, typer.Option(help="One or several, such as 1,8,32.")] = "8",
    rounds: Annotated[int, typer.Option(min=1, help="How often each is measured, in turn.")] = 6,
) -> None:
    """Servers in turn, or results recorded before; ratios to the first."""
    if len(subjects) < 2:
        raise BenchError("compare needs at least two servers, or two result files")
    if all(Path(subject).is_file() for subject in subjects):
        finish(common, compare_recorded({subject: read_result(Path(subject)) for subject in subjects}))
        return
    measure = partial(measure_compare, concurrencies=parse_concurrencies(concurrency), num_rounds=rounds)
    finish(common, measured(common, Experiment.COMPARE, subjects, common.settings(LENGTHS), measure))


@app.command()
@with_common
def replay(
    common: Common,
    trace: Annotated[Path, typer.Argument(help="A trace of Azure, BurstGPT, Mooncake, or our own JSONL.")],
    url: Annotated[str, typer.Option(help="The server.")] = HERE,
    speed: Annotated[float, typer.Option(help="Times as fast as recorded.")] = 1.0,
    shrink: Annotated[float, typer.Option(help="Lengths are divided by this.")] = 1.0,
    requests: Annotated[int | None, typer.Option(min=1, help="Only the first so many.")] = None,
) -> None:
    """Send a recorded trace."""
    items = Scaling(input_divisor=shrink, output_divisor=shrink, speed=speed).items(read_trace(trace, requests))
    settings = common.settings(LENGTHS)
    about = {"trace": str(trace), "speed": f"{speed:g}", "shrink": f"{shrink:g}"}
    settings = replace(settings, about=about)
    result = measured(
        common, Experiment.REPLAY, [url], settings, lambda callers, s: measure_replay(callers[0], s, trace.name, items)
    )
    finish(common, result)


def told(stall: Stall) -> str:
    """The stall in one line."""
    parts = (("before", stall.before), ("during", stall.during), ("after", stall.after))
    gaps = "; ".join(f"{name} {written(part.p50)}, at most {written(part.max)}" for name, part in parts if part)
    return (
        f"stall {written(stall.stall_s)}; TTFT of the long prompt {written(stall.long_ttft_s)}; gaps (median): {gaps}"
    )


def measured(
    common: Common, experiment: Experiment, urls: Sequence[str], settings: Settings, measure: Measure
) -> Result:
    """Connect to all servers and measure. Ctrl-C ends with what was held to its end, in the file as ever."""
    if common.out is not None:
        check_out(common.out)
    console = Console(stderr=True)
    kept: list[Held] = []
    callers: list[Caller] = []
    settings = replace(settings, watch=partial(Progress, console), keep=kept.append)

    async def everything() -> Result:
        async with AsyncExitStack() as stack:
            for url in urls:
                callers.append(await stack.enter_async_context(open_caller(common.endpoint(url))))
            return await measure(callers, settings)

    for number, url in enumerate(urls if len(urls) > 1 else ()):
        console.print(f"{letter(number)}: {url}")
    try:
        return asyncio.run(everything())
    except KeyboardInterrupt:
        if not kept:
            raise
        console.print(f"interrupted: the {len(kept)} loads that were held to their end are kept, without ratios")
        finish(common, result_of(experiment, settings, callers, kept))
        raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


def finish(common: Common, result: Result) -> None:
    """File, report, table."""
    path = common.out or Path(f"bench-{result.header.experiment}.jsonl")
    report = path.with_suffix(".html")
    write_result(path, result)
    write_report(report, result)
    print_result(Console(), result)
    typer.echo(f"{path} (every request), {report} (plots)")


def parse_concurrencies(text: str) -> list[int]:
    """`1-64` doubles; `1,4,6` is a list."""
    first, dash, last = text.partition("-")
    numbers = [first, last] if dash else text.split(",")
    if not all(number.strip().isdecimal() and int(number) for number in numbers):
        raise BenchError(f"--concurrency {text!r}: expected FIRST-LAST such as 1-64, or a list such as 1,4,6")
    return doublings(int(first), int(last)) if dash else sorted({int(number) for number in numbers})


def parse_numbers(option: str, text: str) -> list[float]:
    """A list of numbers."""
    try:
        return sorted({float(number) for number in text.split(",")})
    except ValueError:
        raise BenchError(f"{option} {text!r}: expected numbers with commas between") from None
