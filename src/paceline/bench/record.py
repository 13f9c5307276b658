"""What happened to one request, on the client's clock: the raw material of every measure, and one line of JSONL.

All times are seconds on one monotonic clock from the start of the run. `intended_s` comes from the schedule: latency is
counted from it, so that a client or server that falls behind can't hide its queue (coordinated omission); `sent_s` is
when the request was really written.
"""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended for its client. Everything but COMPLETED misses every target."""

    COMPLETED = "completed"
    REJECTED = "rejected"  # 429 or 503: the server said no
    FAILED = "failed"  # any other error, from the server or the connection
    TIMED_OUT = "timed_out"


class TokenCount(StrEnum):
    """Where the number of output tokens comes from."""

    USAGE = "usage"  # the server's usage object
    EVENTS = "events"  # the server sends one event a token, verified against usage or logprobs
    ESTIMATE = "estimate"  # events counted, nothing to verify them with


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request. `event_times_s[i]` is when the read that brought event i returned; `event_tokens[i]` how many tokens
    it carried. `read_sizes[i]`: events that came in the same read (more than 1: coalesced, their gaps say nothing).
    """

    index: int
    intended_s: float
    sent_s: float
    ended_s: float
    outcome: Outcome
    prompt_tokens: int
    output_tokens: int
    token_count: TokenCount
    event_times_s: tuple[float, ...]
    event_tokens: tuple[int, ...]
    read_sizes: tuple[int, ...]
    cached_tokens: int | None = None
    status: int | None = None
    error: str | None = None
    label: str = ""
