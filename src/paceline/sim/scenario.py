"""One thing to simulate, and what came of it as a point of a result: the types and measures are those of `bench`."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from paceline import __version__
from paceline.bench.measures import Window, closed
from paceline.bench.record import RequestRecord
from paceline.bench.result import Experiment, Header, Point, Result, Targets
from paceline.core.scheduler import Scheduler
from paceline.costs.speculation import Speculation
from paceline.costs.step import StepTime
from paceline.sim.fleet import Fleet, Traffic
from paceline.sim.handoff import Handoff, Link
from paceline.sim.kept import MAX_CELLS, KeptRecords
from paceline.sim.policies import Policy
from paceline.sim.replica import Replica
from paceline.sim.requests import RequestMaker, Requests
from paceline.sim.router import ROUTERS, RouterKind
from paceline.sim.speculation_option import NO_DRAFTS
from paceline.workload.arrivals import ClosedLoop, at_rate
from paceline.workload.item import WorkItem
from paceline.workload.workload import Workload

NO_END = 10**9
MAX_REPLICAS = 4096
NOTHING_COUNTED = "no request ended after --warmup: simulate longer, or with a shorter warm-up"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload on a fleet. It ends after `num_requests`, or when `duration_s` is over and all is answered; the
    first `warmup_s` are not counted. `max_tokens`: see RequestMaker. A `trace` is sent instead of what the workload
    draws, as `requests` makes them where it isn't None. With a `link`, `num_prefill` more replicas compute the prompts
    and the others decode.
    """

    workload: Workload
    policy: Policy
    step_time: StepTime
    trace: tuple[WorkItem, ...] = ()
    requests: Requests | None = None
    num_requests: int | None = None
    duration_s: float | None = None
    warmup_s: float = 0.0
    max_tokens: int | None = None
    num_replicas: int = 1
    router: RouterKind = RouterKind.LEAST_LOADED
    num_prefill: int = 0
    link: Link | None = None
    speculation: Speculation = NO_DRAFTS
    targets: Targets = field(default_factory=Targets)
    label: str = "simulated"


@dataclass(frozen=True, slots=True)
class Simulated:
    """A point, its requests (of a long run some, see KeptRecords), and what only the inside knows."""

    point: Point
    records: tuple[RequestRecord, ...]
    num_steps: int
    num_preemptions: int


def make_pools(scenario: Scenario) -> dict[str, list[Replica]]:
    """The replicas by what they do, those that requests reach first first."""
    pools = {} if scenario.link is None else {"prefill": scenario.num_prefill}
    pools["replicas" if scenario.link is None else "decode"] = scenario.num_replicas
    return {
        name: [Replica(scenario.policy, scenario.step_time, scenario.speculation) for _ in range(number)]
        for name, number in pools.items()
    }


def make_fleet(scenario: Scenario, pools: dict[str, list[Replica]]) -> Fleet:
    """The pools behind the router."""
    front, *behind = pools.values()
    handoff = None if scenario.link is None else Handoff(behind[0], scenario.link, len(front))
    requests = scenario.requests or RequestMaker(scenario.workload.seed, scenario.max_tokens)
    return Fleet(front, ROUTERS[scenario.router](), requests, handoff)


def traffic_of(scenario: Scenario) -> Traffic:
    """What is sent. A trace without times is one request after another."""
    arrivals, trace = scenario.workload.arrivals, scenario.trace
    num_requests = NO_END if scenario.num_requests is None else scenario.num_requests
    if trace:
        concurrency = 1 if trace[0].arrival_s is None else None
        return Traffic(trace[:num_requests], concurrency, scenario.duration_s, scenario.label)
    concurrency = arrivals.concurrency if isinstance(arrivals, ClosedLoop) else None
    return Traffic(scenario.workload.items(num_requests), concurrency, scenario.duration_s, scenario.label)


def rate_of(scenario: Scenario) -> float | None:
    """The rate of an open loop, where it has one."""
    arrivals = scenario.workload.arrivals
    return None if scenario.trace or isinstance(arrivals, ClosedLoop) else arrivals.rate_per_s


def busy_share(replicas: Sequence[Replica], elapsed_s: float) -> float:
    """Of the time, how much they computed."""
    return sum(replica.clock.busy_s for replica in replicas) / max(elapsed_s * len(replicas), 1e-9)


def simulate(scenario: Scenario, max_cells: int = MAX_CELLS) -> Simulated:
    """Run it to its last answer. `max_cells`: see KeptRecords."""
    pools = make_pools(scenario)
    fleet = make_fleet(scenario, pools)
    traffic = traffic_of(scenario)
    kept = KeptRecords(max_cells)
    for record in fleet.run(traffic):
        kept.add(record)
    last = () if kept.last is None else (kept.last,)
    window = closed(Window(scenario.warmup_s), last)
    elapsed_s = last[0].ended_s if last else 0.0
    busy = {name: busy_share(replicas, elapsed_s) for name, replicas in pools.items()}
    replicas = [replica for pool in pools.values() for replica in pool]
    num_preemptions = sum(
        replica.scheduler.num_preemptions for replica in replicas if isinstance(replica.scheduler, Scheduler)
    )
    shares = ", ".join(f"{name} at work {share:.0%} of the time" for name, share in busy.items())
    point = Point(
        label=scenario.label,
        window_start_s=window.start_s,
        window_end_s=max(window.start_s, window.end_s),
        concurrency=traffic.concurrency,
        rate_per_s=rate_of(scenario),
        server=scenario.policy.kind,
        kept_share=kept.share,
        warnings=_warnings(kept, window),
        limited_by=f"{shares}, {num_preemptions} preemptions",
    )
    return Simulated(point, tuple(kept.records), sum(replica.num_steps for replica in replicas), num_preemptions)


def _warnings(kept: KeptRecords, window: Window) -> tuple[str, ...]:
    """What a reader has to know before the numbers."""
    has_ended = any(window.holds(record.ended_s) for record in kept.records)
    refusals = [record.error for record in kept.records if record.error is not None]
    refused = (f"{len(refusals):,} requests were refused; the first: {refusals[0]}",) if refusals else ()
    counted = () if has_ended else (NOTHING_COUNTED,)
    return (*counted, *refused, *(() if kept.warning is None else (kept.warning,)))


def at_load(scenario: Scenario, concurrency: int | None = None, rate_per_s: float | None = None) -> Scenario:
    """The same under another load."""
    workload = scenario.workload
    if concurrency is not None:
        workload = replace(workload, arrivals=ClosedLoop(concurrency))
    if rate_per_s is not None:
        workload = replace(workload, arrivals=at_rate(workload.arrivals, rate_per_s))
    return replace(scenario, workload=workload)


def result_of(runs: Sequence[Simulated], targets: Targets, command: str, about: dict[str, dict[str, str]]) -> Result:
    """All points as one result. Nothing in it depends on when or where it was made."""
    return Result(
        Header(
            experiment=Experiment.RUN if len(runs) == 1 else Experiment.SWEEP,
            command=command,
            started_at="on a virtual clock",
            versions={"paceline": __version__},
            server=about["server"],
            machine={"clock": "virtual: these are simulated times"},
            workload=about["workload"],
            targets=targets,
            points=tuple(run.point for run in runs),
        ),
        tuple(record for run in runs for record in run.records),
    )
