"""The columns of every table: what of a point is shown, in the terminal as in the report."""

from paceline.bench.measures import Spread, Summary
from paceline.bench.record import Outcome, TokenCount
from paceline.bench.result import Point

HEADS = (
    "point",
    "completed",
    "not completed",
    "requests/s",
    "output tokens/s",
    "goodput req/s",
    "met targets",
    "TTFT p50",
    "TTFT p99",
    "ITL p50",
    "ITL p99",
    "ITL max",
    "TPOT p50",
    "E2E p50",
    "E2E p99",
)

QUANTILES = ("mean", "p50", "p90", "p95", "p99", "p999", "max")
PERCENTILE_HEADS = ("measure", "values", "mean", "p50", "p90", "p95", "p99", "p99.9", "max")


def written(seconds: float | None) -> str:
    """A duration for a person: 8.13 ms, 412 ms, 3.62 s."""
    if seconds is None:
        return "–"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.1 else f"{seconds * 1000:.2f} ms"


def cells(point: Point, summary: Summary) -> tuple[str, ...]:
    """The row of a point under HEADS."""
    completed = summary.num_by_outcome[Outcome.COMPLETED]
    # Estimated numbers wear a sign wherever they stand.
    sign = "≈" if summary.token_count is TokenCount.ESTIMATE else ""
    return (
        point.label,
        str(completed),
        outcomes(summary),
        f"{summary.requests_per_s:.2f}",
        f"{sign}{summary.output_tokens_per_s:.1f}",
        f"{summary.goodput_requests_per_s:.2f}",
        f"{summary.share_met:.0%}",
        *_spread(summary.ttft_s, "p50", "p99"),
        *_spread(summary.itl_s, "p50", "p99", "max"),
        *(sign + cell for cell in _spread(summary.tpot_s, "p50")),
        *_spread(summary.e2e_s, "p50", "p99"),
    )


def percentile_rows(point: Point, summary: Summary) -> list[tuple[str, ...]]:
    """Everything measured of a point's latencies, under PERCENTILE_HEADS."""
    spreads = (
        ("TTFT", summary.ttft_s),
        ("TTFT from sending", summary.service_ttft_s),
        ("ITL", summary.itl_s),
        ("worst-10 % ITL", summary.worst_mean_itl_s),
        ("TPOT", summary.tpot_s),
        ("E2E", summary.e2e_s),
        ("E2E from sending", summary.service_e2e_s),
    )
    return [
        (f"{point.label}: {name}", str(spread.num), *_spread(spread, *QUANTILES))
        for name, spread in spreads
        if spread is not None
    ]


def outcomes(summary: Summary) -> str:
    """How many were not completed, and how they ended: `3 (2 rejected, 1 timed out)`."""
    lost = {outcome: num for outcome, num in summary.num_by_outcome.items() if num and outcome is not Outcome.COMPLETED}
    if not lost:
        return "0"
    parts = ", ".join(f"{num} {outcome.value.replace('_', ' ')}" for outcome, num in lost.items())
    return f"{sum(lost.values())} ({parts})"


def _spread(spread: Spread | None, *names: str) -> list[str]:
    return [written(None if spread is None else getattr(spread, name)) for name in names]
