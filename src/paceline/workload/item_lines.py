"""Our own trace format: one item a line as JSON, written and read back exactly.

    {"index": 0, "arrival_s": 0.25, "prompt": [[2, 512], [0, 90]], "output_tokens": 64}

`prompt` lists [segment_id, num_tokens]; items of sessions have "session_id", "turn" and "think_s" as well. Floats are
written with all their digits.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from paceline.workload.fields import MAX_TIME_S, MAX_TOKENS, Row, json_rows, shown
from paceline.workload.item import Segment, WorkItem

MAX_NUMBER = 2**63
MAX_SEGMENT_ID = 2**70
MAX_SEGMENTS = 2**16
FIELDS = frozenset(("index", "arrival_s", "prompt", "output_tokens", "session_id", "turn", "think_s"))


def item_line(item: WorkItem) -> str:
    """The item as one line, without its line break."""
    values: dict[str, Any] = {
        "index": item.index,
        "arrival_s": item.arrival_s,
        "prompt": [[segment.segment_id, segment.num_tokens] for segment in item.prompt],
        "output_tokens": item.output_tokens,
    }
    if item.session_id is not None:
        values |= {"session_id": item.session_id, "turn": item.turn, "think_s": item.think_s}
    return json.dumps(values, allow_nan=False)


def read_items(lines: Iterable[str], trace: str = "trace") -> Iterator[WorkItem]:
    """The items that `item_line` wrote. Raises ConfigError at the first wrong line."""
    last: WorkItem | None = None
    for row in json_rows(lines, trace):
        unknown = row.values.keys() - FIELDS
        if unknown:
            row.line.fail(f"unknown field {shown(min(unknown))}; known: {', '.join(sorted(FIELDS))}")
        item = _item(row)
        if last is None and item.turn:
            row.line.fail(f"field turn must be 0 on the first line, got {item.turn}")
        if last is not None:
            _check_follows(row, item, last)
        last = item
        yield item


def _item(row: Row) -> WorkItem:
    """The item of one line, by itself."""
    arrival_s = None if row.get("arrival_s") is None else row.number("arrival_s", 0, MAX_TIME_S)
    in_session = row.values.get("session_id") is not None
    if not in_session and (row.values.get("turn") or row.values.get("think_s")):
        row.line.fail("fields turn and think_s need a session_id")
    return WorkItem(
        index=row.whole("index", 0, MAX_NUMBER),
        arrival_s=arrival_s,
        prompt=_prompt(row),
        output_tokens=row.whole("output_tokens", 1, MAX_TOKENS),
        session_id=row.whole("session_id", 0, MAX_NUMBER) if in_session else None,
        turn=row.whole("turn", 0, MAX_NUMBER) if in_session else 0,
        think_s=row.number("think_s", 0, MAX_TIME_S) if in_session else 0.0,
    )


def _prompt(row: Row) -> tuple[Segment, ...]:
    """The segments: pairs of whole numbers."""
    given = row.get("prompt")
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_SEGMENTS:
        row.line.fail(f"field prompt must be a list of 1 to {MAX_SEGMENTS} segments, got {shown(given)}")
    segments = []
    for position, pair in enumerate(given):
        name = f"prompt[{position}]"
        if not isinstance(pair, list) or len(pair) != 2:
            row.line.fail(f"field {name} must be [segment_id, num_tokens], got {shown(pair)}")
        segment_id = row.check_whole(f"{name}[0]", pair[0], 0, MAX_SEGMENT_ID)
        segments.append(Segment(segment_id, row.check_whole(f"{name}[1]", pair[1], 1, MAX_TOKENS)))
    return tuple(segments)


def _check_follows(row: Row, item: WorkItem, last: WorkItem) -> None:
    """Indexes rise, turns follow one another directly, sessions come in the order of their numbers and times."""
    if item.index <= last.index:
        row.line.fail(f"field index must rise, got {item.index} after {last.index}")
    if (item.arrival_s is None) != (last.arrival_s is None):
        row.line.fail("field arrival_s must be null on every line (closed loop) or on none")
    same_session = item.session_id is not None and item.session_id == last.session_id
    if same_session != (item.turn > 0) or (same_session and item.turn != last.turn + 1):
        row.line.fail(
            f"field turn: the turns of a session must follow one another directly, got turn {item.turn} of session "
            f"{item.session_id} after turn {last.turn} of session {last.session_id}"
        )
    if not same_session and item.session_id is not None and (last.session_id or 0) > item.session_id:
        row.line.fail(f"field session_id must rise, got {item.session_id} after {last.session_id}")
    if item.arrival_s is not None and last.arrival_s is not None and item.arrival_s < last.arrival_s:
        row.line.fail(f"field arrival_s must not fall, got {item.arrival_s:g} after {last.arrival_s:g}")
