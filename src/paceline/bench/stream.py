"""Turns the timed reads of one answer into its events: server-sent events out, JSON decoded, tokens counted.

Runs after the answer ended, so that its cost never stands between two timestamps. Each event has the time of the read
that completed its line. How many tokens an event carried is known from the server's usage; it is spread evenly over
the events, since chunks are not tokens.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from paceline.bench.record import TokenCount

DONE = b"[DONE]"
MAX_ERROR_CHARACTERS = 300
# About 0.1 ms of work.
READS_PER_SLICE = 32


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


class StreamDecoder:
    """Takes the reads of one answer, a few at a time, so that decoding a long one never holds up the event loop."""

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(Chunk)
        self._rest = b""
        self._is_done = False
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._error: str | None = None
        self._end_s: float | None = None
        self._last_s = 0.0
        self._times_s: list[float] = []
        self._read_sizes: list[int] = []

    def feed(self, read: TimedRead) -> None:
        """Take the next read."""
        *lines, self._rest = (self._rest + read.data).split(b"\n")
        self._last_s = read.time_s
        self._take(lines)

    def answer(self) -> Answer:
        """The whole answer; a last line may lack its line feed."""
        self._take([self._rest])
        error = self._error
        if error is None and not self._is_done and self._finish_reason is None:
            error = "the stream ended without a finish_reason and without [DONE]"
        return Answer(
            event_times_s=tuple(self._times_s),
            read_sizes=tuple(self._read_sizes),
            end_s=self._end_s,
            usage=self._usage,
            finish_reason=self._finish_reason,
            error=error,
        )

    def _take(self, lines: Sequence[bytes]) -> None:
        """The lines that one read completed."""
        num_events = sum(self._event(line[5:].strip()) for line in lines if line.startswith(b"data:"))
        self._times_s += [self._last_s] * num_events
        self._read_sizes += [num_events] * num_events

    def _event(self, data: bytes) -> bool:
        """One event; whether it carries tokens."""
        if self._error is not None:
            return False
        self._end_s = self._last_s
        if data == DONE:
            self._is_done = True
            return False
        try:
            chunk = self._decoder.decode(data)
        except msgspec.DecodeError as reason:
            self._error = f"unreadable event: {reason}"
            return False
        if chunk.error is not None:
            self._error = shortened(f"error in the stream: {msgspec.json.encode(chunk.error).decode()}")
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices:
            self._finish_reason = choice.finish_reason or self._finish_reason
        return any(choice.has_output for choice in chunk.choices)


def decode(reads: Iterable[TimedRead]) -> Answer:
    """The answer that these reads hold."""
    decoder = StreamDecoder()
    for read in reads:
        decoder.feed(read)
    return decoder.answer()


async def decode_gently(reads: Sequence[TimedRead]) -> Answer:
    """The same, in slices between which other streams are read."""
    decoder = StreamDecoder()
    for start in range(0, len(reads), READS_PER_SLICE):
        for read in reads[start : start + READS_PER_SLICE]:
            decoder.feed(read)
        await asyncio.sleep(0)
    return decoder.answer()


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
