"""What all experiments are made of: hold one load on one server for a while, and put the points of it in a result."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from paceline.bench.endpoint import Endpoint
from paceline.bench.exchange import open_session
from paceline.bench.limits import limited_by
from paceline.bench.load import Caller, Load, LoadRun, run_load
from paceline.bench.machine import machine, versions
from paceline.bench.measures import NO_TARGETS, Summary, Window, closed, summarize
from paceline.bench.probe import probe
from paceline.bench.record import RequestRecord
from paceline.bench.result import Experiment, Header, Point, Result, Targets
from paceline.bench.selfcheck import warnings
from paceline.bench.watch import Watcher, unwatched
from paceline.workload.arrivals import ClosedLoop, at_rate
from paceline.workload.item import WorkItem
from paceline.workload.workload import Workload

NO_END = 10**9


@dataclass(frozen=True, slots=True)
class Settings:
    """What every point of an experiment has in common. A point ends after `num_requests`, or else `duration_s`; its
    warm-up and cool-down are not counted. `about` describes the workload for the reader; `watch` gives a follower for
    a load of this label and number of requests; `keep` is given every point that was held to its end.
    """

    workload: Workload
    targets: Targets = NO_TARGETS
    duration_s: float = 30.0
    num_requests: int | None = None
    warmup_s: float = 5.0
    cooldown_s: float = 0.0
    timeout_s: float = 600.0
    max_connections: int | None = None
    command: str = ""
    about: dict[str, str] = field(default_factory=dict)
    watch: Callable[[str, int | None], Watcher] = unwatched
    keep: Callable[["Held"], None] = lambda held: None


@dataclass(frozen=True, slots=True)
class Spot:
    """One load to hold: a closed loop at `concurrency`, an open loop at `rate_per_s`, or the workload's own arrivals.
    `repetition` gives the prompts fresh tokens, so that no cache remembers them from before.
    """

    label: str
    concurrency: int | None = None
    rate_per_s: float | None = None
    repetition: int = 0
    shared_share: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A point and its requests."""

    point: Point
    records: tuple[RequestRecord, ...]
    summary: Summary


@asynccontextmanager
async def open_caller(endpoint: Endpoint) -> AsyncIterator[Caller]:
    """Connect, and find out what the server takes."""
    async with open_session(endpoint) as session:
        yield Caller(session, endpoint, await probe(session, endpoint))


async def hold(caller: Caller, settings: Settings, spot: Spot, items: Iterable[WorkItem] | None = None) -> Held:
    """Hold a load and measure it; `items`: instead of the workload's."""
    load = Load(
        items=items_of(settings, spot) if items is None else items,
        label=spot.label,
        concurrency=spot.concurrency,
        duration_s=settings.duration_s if settings.num_requests is None else None,
        max_connections=settings.max_connections,
        timeout_s=settings.timeout_s,
        prompt_seed=settings.workload.seed * 1_000_003 + spot.repetition,
    )
    with settings.watch(spot.label, settings.num_requests) as watcher:
        run = await run_load(caller, load, watcher.on_record)
    found = held(caller, settings, spot, run)
    settings.keep(found)
    return found


def items_of(settings: Settings, spot: Spot) -> Iterable[WorkItem]:
    """The requests of a load, as many as may be sent."""
    workload = settings.workload
    if spot.concurrency is not None:
        workload = replace(workload, arrivals=ClosedLoop(spot.concurrency))
    elif spot.rate_per_s is not None:
        workload = replace(workload, arrivals=at_rate(workload.arrivals, spot.rate_per_s))
    return workload.items(NO_END if settings.num_requests is None else settings.num_requests)


def window_of(settings: Settings, records: Sequence[RequestRecord]) -> Window:
    """Between warm-up and cool-down; what is awaited after the last send is outside, unless the load was counted."""
    if settings.num_requests is None:
        return Window(settings.warmup_s, settings.duration_s - settings.cooldown_s)
    whole = closed(Window(), records)
    return Window(settings.warmup_s, max(settings.warmup_s, whole.end_s - settings.cooldown_s))


def held(caller: Caller, settings: Settings, spot: Spot, run: LoadRun) -> Held:
    """What a load showed, with all there is to be said about it."""
    window = window_of(settings, run.records)
    summary = summarize(run.records, window, settings.targets)
    said = [*warnings(run.check, run.records, spot.concurrency is None), *caller.abilities.notes]
    if not summary.num_requests:
        said.append("no request ended inside the window: measure longer, or with a shorter warm-up")
    point = Point(
        label=spot.label,
        window_start_s=window.start_s,
        window_end_s=window.end_s,
        concurrency=spot.concurrency,
        rate_per_s=spot.rate_per_s,
        shared_share=spot.shared_share,
        server=caller.endpoint.url,
        warnings=tuple(said),
        limited_by=limited_by(summary, run, window, spot.concurrency),
        client_lag_p99_s=run.check.lag_p99_s,
        client_busy_share=run.check.busy_share,
    )
    return Held(point, run.records, summary)


def result_of(experiment: Experiment, settings: Settings, callers: Sequence[Caller], points: Sequence[Held]) -> Result:
    """All points as one result, without ratios or knee."""
    return Result(
        Header(
            experiment=experiment,
            command=settings.command,
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=versions(),
            server=about_servers(callers),
            machine=machine(),
            workload={"seed": str(settings.workload.seed), **settings.about},
            targets=settings.targets,
            points=tuple(held.point for held in points),
        ),
        tuple(record for held in points for record in held.records),
    )


def letter(number: int) -> str:
    """A, B, C, …: short names of servers that are compared."""
    return chr(ord("A") + number)


def about_servers(callers: Sequence[Caller]) -> dict[str, str]:
    """What the servers say of themselves; keys of several begin with a letter each."""
    if len(callers) == 1:
        return dict(callers[0].abilities.about)
    return {
        f"{letter(number)} {key}": value
        for number, caller in enumerate(callers)
        for key, value in caller.abilities.about
    }


async def measure_run(caller: Caller, settings: Settings, spot: Spot) -> Result:
    """`bench run`: one load."""
    return result_of(Experiment.RUN, settings, [caller], [await hold(caller, settings, spot)])
