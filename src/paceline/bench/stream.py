"""Turns the timed reads of one answer into its events: server-sent events out, JSON decoded, tokens counted.

Runs after the answer ended, so that its cost never stands between two timestamps. Each event has the time of the read
that completed its line. How many tokens an event carried is known from the server's usage; it is spread evenly over
the events, since chunks are not tokens.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from paceline.bench.record import TokenCount

DONE = b"[DONE]"
MAX_ERROR_CHARACTERS = 300


class PromptDetails(msgspec.Struct):
    """Part of usage."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """OpenAI's usage object."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class Delta(msgspec.Struct):
    """What a chat chunk adds; servers name the thoughts of a reasoning model in two ways."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: object = None


class Choice(msgspec.Struct):
    """One choice of a chunk, of either route."""

    text: str | None = None
    delta: Delta | None = None
    finish_reason: str | None = None

    @property
    def has_output(self) -> bool:
        """Whether a reader sees something new."""
        delta = self.delta
        return bool(self.text) or (
            delta is not None and bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls)
        )


class Chunk(msgspec.Struct):
    """The JSON of one event."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: object = None


@dataclass(frozen=True, slots=True)
class TimedRead:
    """The bytes of one socket read and when it returned."""

    time_s: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A decoded stream. `end_s`: the read that brought its last event; `error`: why it is not a whole answer."""

    event_times_s: tuple[float, ...]
    read_sizes: tuple[int, ...]
    end_s: float | None
    usage: Usage | None
    finish_reason: str | None
    error: str | None


def data_lines(reads: Sequence[TimedRead]) -> Iterator[tuple[int, bytes]]:
    """(index of the read that completed it, payload) of every data line; a last line may lack its line feed."""
    rest = b""
    for index, read in enumerate(reads):
        *lines, rest = (rest + read.data).split(b"\n")
        yield from ((index, line[5:].strip()) for line in lines if line.startswith(b"data:"))
    if rest.startswith(b"data:"):
        yield len(reads) - 1, rest[5:].strip()


def decode(reads: Sequence[TimedRead]) -> Answer:
    """The answer that these reads hold."""
    decoder = msgspec.json.Decoder(Chunk)
    token_reads: list[int] = []
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None
    last_read: int | None = None
    is_done = False
    for index, line in data_lines(reads):
        last_read = index
        if line == DONE:
            is_done = True
            continue
        try:
            chunk = decoder.decode(line)
        except msgspec.DecodeError as reason:
            error = f"unreadable event: {reason}"
            break
        if chunk.error is not None:
            error = shortened(f"error in the stream: {msgspec.json.encode(chunk.error).decode()}")
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish_reason = choice.finish_reason or finish_reason
        if any(choice.has_output for choice in chunk.choices):
            token_reads.append(index)
    if error is None and not is_done and finish_reason is None:
        error = "the stream ended without a finish_reason and without [DONE]"
    per_read = Counter(token_reads)
    return Answer(
        event_times_s=tuple(reads[index].time_s for index in token_reads),
        read_sizes=tuple(per_read[index] for index in token_reads),
        end_s=None if last_read is None else reads[last_read].time_s,
        usage=usage,
        finish_reason=finish_reason,
        error=error,
    )


def count_tokens(answer: Answer, asked_tokens: int) -> tuple[int, TokenCount]:
    """Output tokens, and how sure that is. Without usage, events are tokens for certain only where the server says
    that it stopped at the limit and there are as many events as that limit.
    """
    num_events = len(answer.event_times_s)
    if answer.usage is not None and (answer.usage.completion_tokens > 0 or num_events == 0):
        return answer.usage.completion_tokens, TokenCount.USAGE
    if answer.finish_reason == "length" and num_events == asked_tokens:
        return num_events, TokenCount.EVENTS
    return num_events, TokenCount.ESTIMATE


def spread_tokens(num_tokens: int, num_events: int) -> tuple[int, ...]:
    """`num_tokens` over `num_events` as evenly as whole numbers allow, in order: (10, 4) is (2, 3, 2, 3)."""
    edges = [index * num_tokens // num_events for index in range(num_events + 1)] if num_events else [0]
    return tuple(after - before for before, after in pairwise(edges))


def shortened(text: str) -> str:
    """A server's message, cut to a length that fits a line of a result file."""
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[:MAX_ERROR_CHARACTERS] + "…"
