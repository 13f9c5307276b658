"""The result of an experiment: what was asked, where it ran, at which points, and every request of it.

Facts only. Percentiles, goodput and the rest are computed from the records by `measures`, when they are printed and
when they are drawn, so that a table, a plot and a file can never disagree.
"""

from dataclasses import dataclass
from enum import StrEnum

from paceline.bench.record import RequestRecord

FORMAT_VERSION = 1


class Experiment(StrEnum):
    """Which command made the result; it decides which plots come first."""

    RUN = "run"
    SWEEP = "sweep"
    GOODPUT = "goodput"
    HOL = "hol"
    PREFIX = "prefix"
    COMPARE = "compare"
    REPLAY = "replay"


@dataclass(frozen=True, slots=True)
class Targets:
    """Latency targets of a request, in seconds; None: no target. `itl_s` is the target of its mean gap (TPOT)."""

    ttft_s: float | None = None
    itl_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """One load that was held for a while. Its records are those with its `label`; its clock starts with it.

    Events count where `window_start_s <= time < window_end_s`: warm-up before, cool-down after. `warnings` is the
    client's check of itself, `limited_by` says in one sentence what holds the throughput here. `injected`: indexes of
    the records that disturbed the others on purpose (the long prompt of `hol`). `kept_share`: the share of the requests
    that is recorded (of a long simulation not all); counts and rates are those of the records, divided by it.
    `client_lag_p99_s`: how late the client's event loop woke; `client_busy_share`: of one core, what the client used.
    """

    label: str
    window_start_s: float
    window_end_s: float
    concurrency: int | None = None
    rate_per_s: float | None = None
    shared_share: float | None = None
    server: str = ""
    injected: tuple[int, ...] = ()
    kept_share: float = 1.0
    warnings: tuple[str, ...] = ()
    limited_by: str = ""
    client_lag_p99_s: float = 0.0
    client_busy_share: float = 0.0


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """How many times the `measure` of `label` is that of `baseline`: median of the pairs, and its interval."""

    measure: str
    label: str
    baseline: str
    ratio: float
    low: float
    high: float
    pairs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """Everything of a result but its requests. `knee` is the label of the sweep's knee."""

    experiment: Experiment
    command: str
    started_at: str
    versions: dict[str, str]
    server: dict[str, str]
    machine: dict[str, str]
    workload: dict[str, str]
    targets: Targets
    points: tuple[Point, ...]
    ratios: tuple[PairedRatio, ...] = ()
    knee: str | None = None
    version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True)
class Result:
    """A header and its requests, in the order they ended."""

    header: Header
    records: tuple[RequestRecord, ...]

    def records_of(self, point: Point) -> tuple[RequestRecord, ...]:
        """The requests sent at a point."""
        return tuple(record for record in self.records if record.label == point.label)
