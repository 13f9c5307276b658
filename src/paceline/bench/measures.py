"""What every number of a benchmark means, defined once. Pure functions over records; no clock, no I/O.

    intended      sent        first token          last token, end
        |----------|--------------|----|----|----|----|
        |<------- TTFT ---------->|gaps (ITL)
        |          |<- service -->|
        |<------------------- E2E ------------------->|      TPOT = (E2E - TTFT) / (output tokens - 1)

Latency runs from the *intended* time, so that a queue in front of the client's own connections can't hide. The numbers
from the time of sending are the *service* ones. A gap lies between two consecutive events that carry tokens: what the
reader of a stream waits for; where a server packs several tokens into an event, only TPOT is per token.

Everything but a completed request misses every target. The window counts events by their own time: tokens when they
came, TTFT when the first token came inside, E2E when the request ended inside.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.bench.record import Outcome, RequestRecord, TokenCount
from paceline.bench.result import Targets

NO_TARGETS = Targets()
WORST_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Window:
    """Events count where start_s <= time < end_s."""

    start_s: float = 0.0
    end_s: float = math.inf

    def holds(self, time_s: float) -> bool:
        """Whether an event at this time counts."""
        return self.start_s <= time_s < self.end_s


WHOLE_RUN = Window()


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of `num` values (nearest rank: each is a value that was measured)."""

    num: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class Cut:
    """What a window left out: tokens outside it, and the requests that its edges cut through."""

    tokens_before: int
    tokens_after: int
    requests_across_start: int
    requests_across_end: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One load, measured in one window of `seconds`. A Spread is None where nothing was measured."""

    seconds: float
    num_requests: int
    num_by_outcome: dict[Outcome, int]
    ttft_s: Spread | None
    service_ttft_s: Spread | None
    itl_s: Spread | None
    worst_mean_itl_s: Spread | None
    tpot_s: Spread | None
    e2e_s: Spread | None
    service_e2e_s: Spread | None
    requests_per_s: float
    output_tokens_per_s: float
    peak_output_tokens_per_s: float
    prompt_tokens_per_s: float
    cached_tokens: int | None
    goodput_requests_per_s: float
    goodput_tokens_per_s: float
    share_met: float
    token_count: TokenCount
    tokens_per_event: float
    coalesced_share: float
    cut: Cut


def ttft_s(record: RequestRecord) -> float | None:
    """Intended time to first token."""
    return record.event_times_s[0] - record.intended_s if record.event_times_s else None


def service_ttft_s(record: RequestRecord) -> float | None:
    """Time of sending to first token: what the server alone took."""
    return record.event_times_s[0] - record.sent_s if record.event_times_s else None


def e2e_s(record: RequestRecord) -> float:
    """Intended time to the end of the answer."""
    return record.ended_s - record.intended_s


def tpot_s(record: RequestRecord) -> float | None:
    """(E2E - TTFT) / (output tokens - 1); None with fewer than two tokens."""
    if not record.event_times_s or record.output_tokens < 2:
        return None
    return (record.ended_s - record.event_times_s[0]) / (record.output_tokens - 1)


def gaps_s(record: RequestRecord, window: Window = WHOLE_RUN) -> list[float]:
    """Gaps between consecutive token events, those that end inside the window."""
    times = record.event_times_s
    return [later - earlier for earlier, later in pairwise(times) if window.holds(later)]


def worst_mean_gap_s(record: RequestRecord) -> float | None:
    """Mean of the request's longest tenth of gaps (at least one): how it felt at its worst."""
    gaps = sorted(gaps_s(record), reverse=True)
    worst = gaps[: max(1, math.ceil(WORST_SHARE * len(gaps)))]
    return sum(worst) / len(worst) if worst else None


def meets(record: RequestRecord, targets: Targets) -> bool:
    """Whether a request met every target. One that was not completed met none, even where none is set."""
    if record.outcome is not Outcome.COMPLETED:
        return False
    first, pace = ttft_s(record), tpot_s(record)
    return (
        (targets.ttft_s is None or (first is not None and first <= targets.ttft_s))
        and (targets.itl_s is None or pace is None or pace <= targets.itl_s)
        and (targets.e2e_s is None or e2e_s(record) <= targets.e2e_s)
    )


def share_met(records: Sequence[RequestRecord], targets: Targets, window: Window) -> float:
    """Share of the requests meant for the window that met the targets; those that were still waiting at its end count,
    or an overloaded server would look better than it is.
    """
    meant = [record for record in records if window.holds(record.intended_s)]
    return sum(meets(record, targets) for record in meant) / len(meant) if meant else 0.0


def quantile(ordered: Sequence[float], share: float) -> float:
    """Nearest-rank quantile of sorted values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Iterable[float | None]) -> Spread | None:
    """Quantiles of the values that exist."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    return Spread(
        num=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=quantile(ordered, 0.5),
        p90=quantile(ordered, 0.9),
        p95=quantile(ordered, 0.95),
        p99=quantile(ordered, 0.99),
        p999=quantile(ordered, 0.999),
        max=ordered[-1],
    )


def tokens_in(records: Iterable[RequestRecord], window: Window) -> int:
    """Output tokens by their own time."""
    return sum(
        tokens
        for record in records
        for time_s, tokens in zip(record.event_times_s, record.event_tokens, strict=True)
        if window.holds(time_s)
    )


def peak_tokens_per_s(records: Iterable[RequestRecord], window: Window, mean_per_s: float) -> float:
    """Output tokens of the busiest second that starts at the window's start, one later, ...; at least the mean."""
    per_second: Counter[int] = Counter()
    for record in records:
        for time_s, tokens in zip(record.event_times_s, record.event_tokens, strict=True):
            if window.holds(time_s):
                per_second[int(time_s - window.start_s)] += tokens
    return max([mean_per_s, *map(float, per_second.values())])


def cut_by(records: Sequence[RequestRecord], window: Window) -> Cut:
    """What the window leaves out."""
    return Cut(
        tokens_before=tokens_in(records, Window(-math.inf, window.start_s)),
        tokens_after=tokens_in(records, Window(window.end_s, math.inf)),
        requests_across_start=sum(record.sent_s < window.start_s <= record.ended_s for record in records),
        requests_across_end=sum(record.sent_s < window.end_s <= record.ended_s for record in records),
    )


def closed(window: Window, records: Sequence[RequestRecord]) -> Window:
    """The window with a finite end: just after the last event, where it had none."""
    if math.isfinite(window.end_s):
        return window
    last = max((record.ended_s for record in records), default=window.start_s)
    return Window(window.start_s, math.nextafter(last, math.inf))


def summarize(
    records: Sequence[RequestRecord],
    window: Window = WHOLE_RUN,
    targets: Targets = NO_TARGETS,
) -> Summary:
    """Every measure of one load. An open window ends with the last answer."""
    window = closed(window, records)
    seconds = max(window.end_s - window.start_s, 1e-9)
    ended = [record for record in records if window.holds(record.ended_s)]
    done = [record for record in ended if record.outcome is Outcome.COMPLETED]
    begun = [record for record in records if record.event_times_s and window.holds(record.event_times_s[0])]
    good = [record for record in records if meets(record, targets)]
    per_s = tokens_in(records, window) / seconds
    return Summary(
        seconds=seconds,
        num_requests=len(ended),
        num_by_outcome={outcome: sum(record.outcome is outcome for record in ended) for outcome in Outcome},
        ttft_s=spread(map(ttft_s, begun)),
        service_ttft_s=spread(map(service_ttft_s, begun)),
        itl_s=spread(gap for record in records for gap in gaps_s(record, window)),
        worst_mean_itl_s=spread(map(worst_mean_gap_s, done)),
        tpot_s=spread(map(tpot_s, done)),
        e2e_s=spread(map(e2e_s, done)),
        service_e2e_s=spread(record.ended_s - record.sent_s for record in done),
        requests_per_s=len(done) / seconds,
        output_tokens_per_s=per_s,
        peak_output_tokens_per_s=peak_tokens_per_s(records, window, per_s),
        prompt_tokens_per_s=sum(record.prompt_tokens for record in begun) / seconds,
        cached_tokens=total_cached(begun),
        goodput_requests_per_s=sum(window.holds(record.ended_s) for record in good) / seconds,
        goodput_tokens_per_s=tokens_in(good, window) / seconds,
        share_met=share_met(records, targets, window),
        token_count=weakest_count(records),
        tokens_per_event=ratio(
            sum(sum(record.event_tokens) for record in records), sum(len(record.event_tokens) for record in records)
        ),
        coalesced_share=coalesced_share(records),
        cut=cut_by(records, window),
    )


def total_cached(records: Iterable[RequestRecord]) -> int | None:
    """Prompt tokens that the server says came from its cache; None where it says nothing."""
    known = [record.cached_tokens for record in records if record.cached_tokens is not None]
    return sum(known) if known else None


def weakest_count(records: Iterable[RequestRecord]) -> TokenCount:
    """The least certain way in which any request's tokens were counted."""
    used = {record.token_count for record in records if record.event_times_s}
    return max(used, key=list(TokenCount).index, default=TokenCount.USAGE)


def coalesced_share(records: Iterable[RequestRecord]) -> float:
    """Share of token events that shared their read with another: their gaps say nothing."""
    sizes = [size for record in records for size in record.read_sizes]
    return ratio(sum(size > 1 for size in sizes), len(sizes))


def ratio(part: float, whole: float) -> float:
    """part / whole, 0 of nothing."""
    return part / whole if whole else 0.0
