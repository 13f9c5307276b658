"""`simulate --replay FILE`: a recorded run as it was, or its requests under another policy, fleet or cost of a step."""

from dataclasses import dataclass, replace
from pathlib import Path

from paceline.bench.measures import Window, closed
from paceline.bench.record import RequestRecord
from paceline.bench.result import Point
from paceline.core.request import Request, RequestId, StopRule
from paceline.engine.journal import Header
from paceline.engine.messages import Submit
from paceline.errors import ConfigError
from paceline.sim.executor import STOP_TOKEN
from paceline.sim.recording import read_recording
from paceline.sim.replay import Replay, ReplayedPart, replay_all
from paceline.sim.requests import seeded
from paceline.sim.scenario import Simulated
from paceline.workload.item import WorkItem
from paceline.workload.segments import new_segment


def simulate_recording(path: Path) -> list[Simulated]:
    """Its requests with the latencies that the recorded durations give. Raises PlanDiffersError: this scheduler would
    not have done what was recorded.
    """
    parts = replay_all(read_recording(path), keeps_records=True)
    return [_simulated(part, f"start {number}") for number, part in enumerate(parts, 1)]


@dataclass(frozen=True, slots=True)
class RecordedRequests:
    """Requests that a server was sent, one for each choice, by their time; how many tokens each was answered with is
    what it will be answered with again.
    """

    requests: tuple[Request, ...]
    lengths: tuple[int, ...]

    def items(self) -> tuple[WorkItem, ...]:
        """Them as items, from the first one's time."""
        first_s = self.requests[0].arrival_s
        return tuple(
            WorkItem(index, request.arrival_s - first_s, (new_segment(index, len(request.prompt)),), num_output)
            for index, (request, num_output) in enumerate(zip(self.requests, self.lengths, strict=True))
        )

    def request(self, request_id: RequestId, item: WorkItem, arrival_s: float) -> Request:
        """The one that was sent, with its own tokens; it ends by a stop token where it ended."""
        known = self.requests[item.index]
        stop = StopRule(known.stop.max_tokens, stop_token_ids=frozenset((STOP_TOKEN,)))
        return Request(
            request_id,
            known.prompt,
            stop,
            seeded(known.sampling.seed, item.index),
            arrival_s=arrival_s,
            priority=known.priority,
            namespace=known.namespace,
        )


def read_requests(path: Path) -> RecordedRequests:
    """What a recorded server was asked; requests that gave no token are left out. Raises ConfigError where there are
    several starts of an engine, whose clocks need not be the same.
    """
    replay: Replay | None = None
    asked: dict[int, Request] = {}
    found: list[tuple[Request, int]] = []
    for line in read_recording(path):
        if isinstance(line, Header):
            if replay is not None:
                raise ConfigError(
                    f"--replay {path} with --costs: holds several starts of an engine; record each by itself"
                )
            replay = Replay(line)
            continue
        assert replay is not None, "a recording begins with a header"
        if isinstance(line, Submit):
            asked[line.request_id] = line.request()
        found += [(asked[record.index], record.output_tokens) for record in replay.apply(line) if record.output_tokens]
    if not found:
        raise ConfigError(f"--replay {path}: holds no request that was answered")
    found.sort(key=lambda pair: (pair[0].arrival_s, pair[0].request_id))
    return RecordedRequests(tuple(request for request, _ in found), tuple(length for _, length in found))


def about_recording(path: Path) -> dict[str, dict[str, str]]:
    """What a report says of it."""
    return {"server": {"policy": "as recorded", "costs": "recorded durations"}, "workload": {"recording": path.name}}


def _simulated(part: ReplayedPart, label: str) -> Simulated:
    """Times from the first arrival."""
    first_s = min((record.intended_s for record in part.records), default=0.0)
    records = tuple(shifted(record, first_s, label) for record in part.records)
    window = closed(Window(), records)
    busy_share = part.busy_s / max(window.end_s, 1e-9)
    point = Point(
        label=label,
        window_start_s=window.start_s,
        window_end_s=window.end_s,
        limited_by=f"at work {busy_share:.0%} of the time, {part.num_preemptions} preemptions",
    )
    return Simulated(point, records, part.num_steps, part.num_preemptions)


def shifted(record: RequestRecord, zero_s: float, label: str) -> RequestRecord:
    """The record on a clock that began at `zero_s`."""
    return replace(
        record,
        label=label,
        intended_s=record.intended_s - zero_s,
        sent_s=record.sent_s - zero_s,
        ended_s=record.ended_s - zero_s,
        event_times_s=tuple(time_s - zero_s for time_s in record.event_times_s),
    )
