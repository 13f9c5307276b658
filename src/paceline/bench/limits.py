"""Says in one sentence what held the throughput at a point: the client, the load that was offered, or the server."""

from collections.abc import Sequence

from paceline.bench.load import LoadRun
from paceline.bench.measures import Summary, Window
from paceline.bench.record import Outcome, RequestRecord
from paceline.bench.selfcheck import MIN_ACHIEVED, missed_schedule


def limited_by(summary: Summary, run: LoadRun, window: Window, concurrency: int | None) -> str:
    """The sentence; `concurrency` is that of a closed loop."""
    if run.check.was_bottleneck:
        return "the client: it could not send and read in time"
    refused = summary.num_by_outcome[Outcome.REJECTED]
    if refused:
        return f"the server: it rejected {refused} of {summary.num_requests} requests"
    if concurrency is not None:
        mean = mean_in_flight(run.records, window)
        return f"the concurrency: {mean:.1f} of {concurrency} requests were under way on average"
    if missed_schedule(run.records) is not None:
        return "the bound on connections: requests waited in the client"
    arrived = sum(window.holds(record.intended_s) for record in run.records) / summary.seconds
    if summary.requests_per_s < MIN_ACHIEVED * arrived:
        return f"the server: it answered {summary.requests_per_s:.2f} of {arrived:.2f} requests/s; its queue grew"
    return f"the rate: the server kept up with {arrived:.2f} requests/s"


def mean_in_flight(records: Sequence[RequestRecord], window: Window) -> float:
    """Requests under way at a time, over the window."""
    seconds = sum(
        max(0.0, min(record.ended_s, window.end_s) - max(record.sent_s, window.start_s)) for record in records
    )
    return seconds / max(window.end_s - window.start_s, 1e-9)
