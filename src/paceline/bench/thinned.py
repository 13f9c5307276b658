"""Measures of a point of which only a share of the requests was recorded: what is counted stands for all of them.

Latencies and shares are those of the recorded requests as they are: which ones were recorded has nothing to do with how
they fared.
"""

from collections.abc import Sequence
from dataclasses import replace

from paceline.bench.measures import Cut, Summary, Window, summarize
from paceline.bench.record import RequestRecord
from paceline.bench.result import Point, Targets


def summarize_point(records: Sequence[RequestRecord], point: Point, targets: Targets) -> Summary:
    """Every measure of a point, from those of its records that are measured."""
    summary = summarize(records, Window(point.window_start_s, point.window_end_s), targets)
    return summary if point.kept_share == 1.0 else _of_all(summary, 1.0 / point.kept_share)


def _of_all(summary: Summary, factor: float) -> Summary:
    cut = summary.cut
    return replace(
        summary,
        num_requests=round(summary.num_requests * factor),
        num_by_outcome={outcome: round(num * factor) for outcome, num in summary.num_by_outcome.items()},
        requests_per_s=summary.requests_per_s * factor,
        output_tokens_per_s=summary.output_tokens_per_s * factor,
        peak_output_tokens_per_s=summary.peak_output_tokens_per_s * factor,
        prompt_tokens_per_s=summary.prompt_tokens_per_s * factor,
        cached_tokens=None if summary.cached_tokens is None else round(summary.cached_tokens * factor),
        goodput_requests_per_s=summary.goodput_requests_per_s * factor,
        goodput_tokens_per_s=summary.goodput_tokens_per_s * factor,
        cut=Cut(
            round(cut.tokens_before * factor),
            round(cut.tokens_after * factor),
            round(cut.requests_across_start * factor),
            round(cut.requests_across_end * factor),
        ),
    )
