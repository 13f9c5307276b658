"""Events out of timed reads, however the network cuts them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.bench.record import TokenCount
from paceline.bench.stream import Answer, TimedRead, Usage, count_tokens, decode, spread_tokens

EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
    b': keep-alive\n\ndata: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}\r\n\r\n',
    b'data:{"choices":[{"index":0,"delta":{"reasoning_content":"b"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":4}}}\n\n',
    b"data: [DONE]\n\n",
)
WHOLE = b"".join(EVENTS)


def test_roles_usage_ends_and_comments_are_no_tokens() -> None:
    answer = decode([TimedRead(float(number), event) for number, event in enumerate(EVENTS)])
    assert answer.event_times_s == (1.0, 2.0)
    assert answer.read_sizes == (1, 1)
    assert answer.end_s == 5.0
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 4
    assert (answer.finish_reason, answer.error) == ("length", None)


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=12))
def test_an_event_has_the_time_of_the_read_that_completed_its_line(cuts: list[int]) -> None:
    edges = [0, *sorted(set(cuts)), len(WHOLE)]
    pieces = [WHOLE[a:b] for a, b in pairwise(edges)]
    answer = decode([TimedRead(float(number), piece) for number, piece in enumerate(pieces)])
    expected = []
    for token in (b'"a"', b'"b"'):
        line_end = WHOLE.index(b"\n", WHOLE.index(token)) + 1
        expected.append(float(next(number for number, edge in enumerate(edges[1:]) if edge >= line_end)))
    assert list(answer.event_times_s) == expected
    assert answer.error is None
    assert answer.read_sizes == ((2, 2) if expected[0] == expected[1] else (1, 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'data: {"choices":[{"text":"a"}]}\n\n', "without a finish_reason"),
        (b"", "without a finish_reason"),
        (b"data: {broken\n\n", "unreadable event"),
        (b'data: {"choices": 3}\n\n', "unreadable event"),
        (b'data: {"error":{"message":"out of memory"}}\n\ndata: [DONE]\n\n', "out of memory"),
        (b'data: {"error":"no"}\n\n', "no"),
    ],
)
def test_a_stream_that_is_not_whole_says_why(data: bytes, message: str) -> None:
    assert message in (decode([TimedRead(0.0, data)]).error or "")


def test_a_last_line_without_line_feed_counts() -> None:
    answer = decode([TimedRead(1.0, b'data: {"choices":[{"text":"a"}]}\n\n'), TimedRead(2.0, b"data: [DONE]")])
    assert (answer.error, answer.end_s, answer.event_times_s) == (None, 2.0, (1.0,))


def answer_of(num_events: int, usage: Usage | None, finish_reason: str) -> Answer:
    return Answer((1.0,) * num_events, (1,) * num_events, 1.0, usage, finish_reason, None)


@pytest.mark.parametrize(
    ("num_events", "completion_tokens", "finish_reason", "expected"),
    [
        (10, 30, "stop", (30, TokenCount.USAGE)),
        (10, None, "length", (10, TokenCount.EVENTS)),
        (9, None, "length", (9, TokenCount.ESTIMATE)),
        (10, None, "stop", (10, TokenCount.ESTIMATE)),
        (10, 0, "stop", (10, TokenCount.ESTIMATE)),
        (0, 0, "stop", (0, TokenCount.USAGE)),
    ],
)
def test_where_the_number_of_tokens_comes_from(
    num_events: int, completion_tokens: int | None, finish_reason: str, expected: tuple[int, TokenCount]
) -> None:
    usage = None if completion_tokens is None else Usage(5, completion_tokens)
    assert count_tokens(answer_of(num_events, usage, finish_reason), 10) == expected


@given(st.integers(0, 500), st.integers(1, 100))
def test_tokens_are_spread_evenly_and_none_is_lost(num_tokens: int, num_events: int) -> None:
    spread = spread_tokens(num_tokens, num_events)
    assert (sum(spread), len(spread)) == (num_tokens, num_events)
    assert max(spread) - min(spread) <= 1
    assert spread_tokens(num_tokens, 0) == ()
