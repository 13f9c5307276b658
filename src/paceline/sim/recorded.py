"""`simulate --replay FILE`: a recording as points of a result, one for each start of the engine."""

from dataclasses import replace
from pathlib import Path

from paceline.bench.measures import Window, closed
from paceline.bench.record import RequestRecord
from paceline.bench.result import Point
from paceline.sim.recording import read_recording
from paceline.sim.replay import ReplayedPart, replay_all
from paceline.sim.scenario import Simulated


def simulate_recording(path: Path) -> list[Simulated]:
    """Its requests with the latencies that the recorded durations give. Raises PlanDiffersError: this scheduler would
    not have done what was recorded.
    """
    parts = replay_all(read_recording(path), keeps_records=True)
    return [_simulated(part, f"start {number}") for number, part in enumerate(parts, 1)]


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
