"""Readers of published traces: from lines of text to items, one at a time, at the recorded times from the first.

Requests without input or output tokens (failures, in BurstGPT) are left out; whatever else is wrong is an error. Times
may not go back: a reader that holds one line can't sort.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from paceline.workload.fields import MAX_TIME_S, MAX_TOKENS, Line, Row, csv_rows, json_rows, shown
from paceline.workload.item import Segment, WorkItem
from paceline.workload.segments import block_segment, new_segment

MOONCAKE_BLOCK_TOKENS = 512
MAX_HASH_ID = 2**64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceReader(Protocol):
    """Lines of a trace to its items; `trace` names it in errors."""

    def __call__(self, lines: Iterable[str], trace: str = "trace") -> Iterator[WorkItem]:
        """The items. Raises ConfigError at the first wrong line."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a line says: its time, its lengths, and the blocks of its prompt where the trace names them."""

    line: Line
    time_s: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[Segment, ...] = ()


def read_azure(lines: Iterable[str], trace: str = "trace") -> Iterator[WorkItem]:
    """Azure LLM inference traces, 2023 and 2024: CSV with TIMESTAMP, ContextTokens, GeneratedTokens."""
    return _items(
        _Entry(
            row.line,
            _clock_time_s(row, "TIMESTAMP"),
            row.whole("ContextTokens", 0, MAX_TOKENS),
            row.whole("GeneratedTokens", 0, MAX_TOKENS),
        )
        for row in csv_rows(lines, trace)
    )


def read_burstgpt(lines: Iterable[str], trace: str = "trace") -> Iterator[WorkItem]:
    """BurstGPT: CSV with Timestamp (seconds), Request tokens, Response tokens; other columns aren't needed."""
    return _items(
        _Entry(
            row.line,
            row.number("Timestamp", 0, MAX_TIME_S),
            row.whole("Request tokens", 0, MAX_TOKENS),
            row.whole("Response tokens", 0, MAX_TOKENS),
        )
        for row in csv_rows(lines, trace)
    )


def read_mooncake(lines: Iterable[str], trace: str = "trace") -> Iterator[WorkItem]:
    """Mooncake: JSONL with timestamp (ms), input_length, output_length and hash_ids, one for each 512 tokens.

    Equal ids are equal tokens, so prompts share what they shared when recorded. Tokens past the named blocks are new.
    """
    return _items(
        _Entry(
            row.line,
            row.number("timestamp", 0, MAX_TIME_S * 1000) / 1000,
            row.whole("input_length", 0, MAX_TOKENS),
            row.whole("output_length", 0, MAX_TOKENS),
            _blocks(row),
        )
        for row in json_rows(lines, trace)
    )


def _items(entries: Iterable[_Entry]) -> Iterator[WorkItem]:
    """Number the requests that have tokens, and count time from the first line."""
    first_s: float | None = None
    last_s = 0.0
    index = 0
    for entry in entries:
        if first_s is None:
            first_s = last_s = entry.time_s
        if entry.time_s < last_s:
            entry.line.fail(f"its time lies {last_s - entry.time_s:g} s before the line above: sort the trace by time")
        last_s = entry.time_s
        if entry.input_tokens and entry.output_tokens:
            num_new = entry.input_tokens - sum(block.num_tokens for block in entry.blocks)
            new = (new_segment(index, num_new),) if num_new else ()
            yield WorkItem(index, entry.time_s - first_s, (*entry.blocks, *new), entry.output_tokens)
            index += 1


def _blocks(row: Row) -> tuple[Segment, ...]:
    """The blocks that hash_ids names; the last may be partly filled."""
    hash_ids = row.get("hash_ids")
    if not isinstance(hash_ids, list):
        row.line.fail(f"field hash_ids must be a list of whole numbers, got {shown(hash_ids)}")
    left = row.whole("input_length", 0, MAX_TOKENS)
    most = -(-left // MOONCAKE_BLOCK_TOKENS)
    if len(hash_ids) > most:
        row.line.fail(f"field hash_ids names {len(hash_ids)} blocks, input_length {left} has {most} of 512 tokens")
    blocks = []
    for position, given in enumerate(hash_ids):
        block_id = row.check_whole(f"hash_ids[{position}]", given, 0, MAX_HASH_ID)
        blocks.append(block_segment(block_id, min(left, MOONCAKE_BLOCK_TOKENS)))
        left -= blocks[-1].num_tokens
    return tuple(blocks)


def _clock_time_s(row: Row, name: str) -> float:
    """Seconds since 1970 of `2023-11-16 18:17:03.9799600`; without an offset it counts as UTC."""
    given = row.get(name)
    try:
        time = datetime.fromisoformat(given)
    except ValueError:
        row.line.fail(f"field {name} must be a time such as 2023-11-16 18:17:03.97996, got {shown(given)}")
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH).total_seconds()
