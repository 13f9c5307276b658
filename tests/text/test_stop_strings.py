"""A stop string cuts the text before its first occurrence, however the text arrives."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import RequestError
from paceline.text.stops import MAX_STOP_CHARS, MAX_STOPS, StopScanner, StopStrings


def scan(stops: list[str], deltas: list[str], include_stop: bool = False) -> tuple[list[str], StopScanner]:
    """What each delta showed, up to the match or the flush."""
    scanner = StopScanner(StopStrings(stops, include_stop))
    shown = []
    for delta in deltas:
        shown.append(scanner.push(delta))
        if scanner.match is not None:
            return shown, scanner
    return [*shown, scanner.flush()], scanner


def cut(stops: list[str], text: str, include_stop: bool = False) -> tuple[str, str | None]:
    """The rule: cut before the occurrence that starts first; of two there, the shorter is complete first."""
    found = [(text.index(stop), len(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    start, length, stop = min(found)
    return text[: start + length if include_stop else start], stop


small_text = st.text(alphabet="abc", max_size=24)
small_stops = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4)


@st.composite
def split_text(draw: st.DrawFn) -> list[str]:
    text = draw(small_text)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[start:end] for start, end in pairwise([0, *cuts, len(text)])]


@given(stops=small_stops, deltas=split_text(), include_stop=st.booleans())
@settings(max_examples=600, deadline=None)
def test_however_a_text_is_split_it_is_cut_as_if_searched_whole(
    stops: list[str], deltas: list[str], include_stop: bool
) -> None:
    text = "".join(deltas)
    shown, scanner = scan(stops, deltas, include_stop)
    expected, stop = cut(stops, text, include_stop)
    assert "".join(shown) == expected
    assert (None if scanner.match is None else scanner.match.stop) == stop
    if scanner.match is not None:
        assert text[scanner.match.start : scanner.match.end] == stop


@given(stops=small_stops, deltas=split_text())
@settings(max_examples=600, deadline=None)
def test_nothing_shown_can_begin_a_stop_and_nothing_else_is_held_back(stops: list[str], deltas: list[str]) -> None:
    scanner = StopScanner(StopStrings(stops))
    text = shown = ""
    for delta in deltas:
        text += delta
        shown += scanner.push(delta)
        if scanner.match is not None:
            break
        if any(stop in text for stop in stops):
            continue  # found, but one that starts before it may still come
        begun = max((n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n])), default=0)
        assert shown == text[: len(text) - begun]


def test_b003_a_stop_may_end_inside_a_delta() -> None:
    shown, scanner = scan(["w th"], ["know", " the", " rest"])
    assert shown == ["kno", ""]
    assert scanner.match is not None
    assert (scanner.match.start, scanner.match.end) == (3, 7)


def test_of_overlapping_stops_the_one_that_starts_first_wins() -> None:
    assert scan(["bc", "abcd"], ["x", "a", "b", "c", "d"])[0] == ["x", "", "", "", ""]
    assert "".join(scan(["bc", "abcd"], ["x", "a", "b", "c", "e"])[0]) == "xa"
    assert "".join(scan(["bc", "abcd"], ["x", "a", "b", "c"])[0]) == "xa"


def test_no_stops_hold_nothing_back() -> None:
    assert scan([], ["ab", "c"])[0] == ["ab", "c", ""]


@pytest.mark.parametrize("stops", [[""], ["x" * (MAX_STOP_CHARS + 1)], ["x"] * (MAX_STOPS + 1)])
def test_limits_are_named(stops: list[str]) -> None:
    with pytest.raises(RequestError, match=r"\d") as caught:
        StopStrings(stops)
    assert caught.value.param == "stop"


def test_many_long_stops_cost_one_pass() -> None:
    """The worst case for rescanning: every stop nearly matches all the time."""
    stops = StopStrings(["a" * n + "b" for n in range(MAX_STOP_CHARS - MAX_STOPS, MAX_STOP_CHARS)])
    scanner = StopScanner(stops)
    shown = "".join(scanner.push("a" * 10) for _ in range(2000))
    assert len(shown) == 20_000 - (MAX_STOP_CHARS - 1)
    assert scanner.push("b") == ""
    assert scanner.match is not None
