"""The incremental scanner takes what the standard library takes, and knows the end of a value when it comes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.text.json_scanner import MAX_JSON_DEPTH, JsonScanner, Progress

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=12,
)


def scan(text: str) -> tuple[int, Progress]:
    """(characters taken, what the last push said)."""
    scanner = JsonScanner()
    for index, char in enumerate(text):
        progress = scanner.push(char)
        if progress in (Progress.PAST, Progress.BROKEN):
            return index, progress
        if progress is Progress.DONE:
            return index + 1, progress
    return len(text), Progress.MORE


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_a_value_ends_where_it_ends(value: Any, indent: int | None, is_ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    num_taken, progress = scan(text + " ")
    assert (num_taken, progress in (Progress.DONE, Progress.PAST)) == (len(text), True)


@given(st.text(alphabet='{}[]",:\\u01eE+-.truefalsn \t', max_size=30) | JSON.map(json.dumps), st.data())
def test_what_completes_is_what_the_standard_library_takes(text: str, data: st.DataObject) -> None:
    if text and data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(text) - 1))
        text = text[:position] + data.draw(st.sampled_from('{}[]",:\\0e.x')) + text[position + 1 :]
    num_taken, progress = scan(text + "\n")
    is_whole = progress in (Progress.DONE, Progress.PAST) and not text[num_taken:].strip(" \t\n\r")
    try:
        json.loads(text, parse_constant=pytest.fail)
        is_json = True
    except (ValueError, pytest.fail.Exception):
        is_json = False
    assert is_whole == is_json


def test_depth_and_number_length_are_bounded() -> None:
    assert scan("[" * MAX_JSON_DEPTH)[1] is Progress.MORE
    assert scan("[" * (MAX_JSON_DEPTH + 1)) == (MAX_JSON_DEPTH, Progress.BROKEN)
    assert scan("1" * 10_000)[1] is Progress.BROKEN
