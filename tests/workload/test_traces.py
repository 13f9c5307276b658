"""Published traces become items at their recorded times; our own lines round trip; wrong lines name line and field."""

import json
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from work_world import common_prefix, prompt_ids, workloads

from paceline.errors import ConfigError
from paceline.workload.fields import MAX_LINE_CHARS
from paceline.workload.item import Segment, WorkItem
from paceline.workload.item_lines import item_line, read_items
from paceline.workload.segments import block_segment, new_segment
from paceline.workload.traces import read_azure, read_burstgpt, read_mooncake
from paceline.workload.workload import Workload

Reader = Callable[[Iterable[str], str], Iterator[WorkItem]]

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 23:59:59.9799600,374,44
2023-11-17 00:00:00.4799600,396,109

2023-11-17 00:01:00.9799600,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 02:00:00.017335+02:00,2399,6
"""
BURSTGPT = """\ufeffTimestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
MOONCAKE = """{"timestamp": 27000, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 30000, "input_length": 1600, "output_length": 26, "hash_ids": [46, 47, 2353, 2354]}
{"timestamp": 30000, "input_length": 700, "output_length": 26, "hash_ids": [46]}
"""


def refusal(reader: Reader, text: str) -> str:
    """What the reader says about a text that is wrong."""
    with pytest.raises(ConfigError) as caught:
        list(reader(text.splitlines(keepends=True), "my trace"))
    assert len(caught.value.message) < 500
    return caught.value.message


def test_azure_traces_of_both_years() -> None:
    items = list(read_azure(AZURE_2023.splitlines()))
    assert [item.arrival_s for item in items] == [0, pytest.approx(0.5), pytest.approx(61)]
    assert [(item.prompt_tokens, item.output_tokens) for item in items] == [(374, 44), (396, 109), (879, 55)]
    assert [item.prompt for item in items[:1]] == [(new_segment(0, 374),)]
    later = list(read_azure(AZURE_2024.splitlines()))
    assert [item.arrival_s for item in later] == [0, pytest.approx(0.007405, abs=1e-6)]


def test_burstgpt_leaves_failures_out() -> None:
    items = list(read_burstgpt(BURSTGPT.splitlines()))
    assert [(item.index, item.arrival_s, item.prompt_tokens, item.output_tokens) for item in items] == [
        (0, 0, 472, 18),
        (1, 113, 417, 276),
    ]


def test_burstgpt_with_sessions_has_other_columns_in_other_places() -> None:
    lines = [
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        "5,3,1.5,ChatGPT,472,18,490,API log",
    ]
    assert [(item.prompt_tokens, item.output_tokens) for item in read_burstgpt(lines)] == [(472, 18)]


def test_mooncake_prompts_share_the_blocks_with_equal_ids() -> None:
    first, second, third = read_mooncake(MOONCAKE.splitlines())
    assert [item.arrival_s for item in (first, second, third)] == [0, 3, 3]
    assert first.prompt == (block_segment(46, 512), block_segment(47, 512), block_segment(48, 76))
    assert [item.prompt_tokens for item in (first, second, third)] == [1100, 1600, 700]
    assert common_prefix(prompt_ids(first), prompt_ids(second)) in (1024, 1025)
    assert third.prompt == (block_segment(46, 512), new_segment(2, 188))


def test_readers_are_lazy() -> None:
    def endless() -> Iterator[str]:
        yield "TIMESTAMP,ContextTokens,GeneratedTokens"
        while True:
            yield "2023-11-16 18:17:03.9799600,374,44"

    items = read_azure(endless())
    assert [next(items).index for _ in range(3)] == [0, 1, 2]


@settings(max_examples=60, deadline=None)
@given(workloads)
def test_our_own_lines_round_trip_exactly(workload: Workload) -> None:
    items = list(workload.items(30))
    assert list(read_items([item_line(item) + "\n" for item in items])) == items


numbers = st.floats(0, 1e9)
counts = st.integers(0, 2**63 - 1)


@settings(max_examples=60, deadline=None)
@given(
    counts,
    numbers | st.none(),
    st.lists(st.tuples(st.integers(0, 2**70), st.integers(1, 2**24)), min_size=1),
    counts,
    numbers,
)
def test_any_valid_item_round_trips_exactly(
    index: int, arrival_s: float | None, prompt: list[tuple[int, int]], session_id: int, think_s: float
) -> None:
    segments = tuple(Segment(*pair) for pair in prompt)
    item = WorkItem(index, arrival_s, segments, 5, session_id, 0, think_s)
    assert list(read_items([item_line(item)])) == [item]


HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ITEM = '{"index": %s, "arrival_s": %s, "prompt": %s, "output_tokens": %s%s}\n'


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (read_azure, HEADER + "2023-11-16,1\n", "my trace, line 2: 2 fields, but the header names 3"),
        (
            read_azure,
            HEADER + "soon,1,1\n",
            "line 2: field TIMESTAMP must be a time such as 2023-11-16 18:17:03.97996, got 'soon'",
        ),
        (read_azure, HEADER + "2023-02-31 00:00:00,1,1\n", "line 2: field TIMESTAMP must be a time"),
        (
            read_azure,
            HEADER + "2023-11-16 18:17:03,-5,1\n",
            "line 2: field ContextTokens must be a whole number from 0 to 16777216, got '-5'",
        ),
        (read_azure, HEADER + "2023-11-16 18:17:03,1,1e3\n", "field GeneratedTokens must be a whole number"),
        (read_azure, HEADER + f"2023-11-16 18:17:03,{'9' * 5000},1\n", "field ContextTokens"),
        (read_azure, HEADER + "2023-11-16 18:17:03,٣,1\n", "field ContextTokens"),
        (
            read_azure,
            HEADER + "2023-11-16 18:17:04,1,1\n2023-11-16 18:17:03,1,1\n",
            "line 3: its time lies 1 s before the line above: sort the trace by time",
        ),
        (read_azure, "a,b\n1,2\n", "line 2: field TIMESTAMP is missing; there are: a, b"),
        (read_azure, HEADER + "x" * (MAX_LINE_CHARS + 1), "line 2: longer than 1048576 characters"),
        (
            read_burstgpt,
            "Timestamp,Request tokens,Response tokens\nnan,1,1\n",
            "line 2: field Timestamp must be a number from 0 to 1e+09, got 'nan'",
        ),
        (read_mooncake, "{\n", "line 1: not JSON"),
        (read_mooncake, "[" * 100_000, "line 1: not JSON"),
        (read_mooncake, "[1]", "line 1: must be a JSON object, got '[1]'"),
        (read_mooncake, '{"timestamp": 1}', "line 1: field input_length is missing; there are: timestamp"),
        (
            read_mooncake,
            '{"timestamp": 1, "input_length": true, "output_length": 1, "hash_ids": []}',
            "field input_length must be a whole number from 0 to 16777216, got True",
        ),
        (
            read_mooncake,
            '{"timestamp": 1e999, "input_length": 1, "output_length": 1, "hash_ids": []}',
            "field timestamp must be a number",
        ),
        (
            read_mooncake,
            '{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, "2"]}',
            "field hash_ids[1] must be a whole number from 0 to 18446744073709551616, got '2'",
        ),
        (
            read_mooncake,
            '{"timestamp": 1, "input_length": 512, "output_length": 1, "hash_ids": [1, 2]}',
            "field hash_ids names 2 blocks, input_length 512 has 1 of 512 tokens",
        ),
        (
            read_mooncake,
            '{"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": 7}',
            "field hash_ids must be a list of whole numbers, got 7",
        ),
        (read_items, ITEM % (0, 0, "[]", 1, ""), "field prompt must be a list of 1 to 65536 segments, got []"),
        (read_items, ITEM % (0, 0, "[[1]]", 1, ""), "field prompt[0] must be [segment_id, num_tokens], got [1]"),
        (read_items, ITEM % (0, 0, "[[1, 0]]", 1, ""), "field prompt[0][1] must be a whole number from 1"),
        (read_items, ITEM % (0, 0, "[[1, 1]]", 0, ""), "field output_tokens must be a whole number from 1"),
        (read_items, ITEM % (0, '"1"', "[[1, 1]]", 1, ""), "field arrival_s must be a number"),
        (read_items, ITEM % (0, 0, "[[1, 1]]", 1, ', "turn": 1'), "fields turn and think_s need a session_id"),
        (read_items, ITEM % (0, 0, "[[1, 1]]", 1, ', "colour": 1'), "unknown field 'colour'; known: arrival_s"),
        (
            read_items,
            ITEM % (0, 0, "[[1, 1]]", 1, ', "session_id": 3, "turn": 1, "think_s": 0'),
            "field turn must be 0 on the first line, got 1",
        ),
        (
            read_items,
            ITEM % (0, 0, "[[1, 1]]", 1, ', "session_id": 3, "turn": 0, "think_s": 0')
            + ITEM % (1, 0, "[[1, 1]]", 1, ', "session_id": 3, "turn": 2, "think_s": 0'),
            "must follow one another directly, got turn 2 of session 3 after turn 0 of session 3",
        ),
        (
            read_items,
            ITEM % (0, 0, "[[1, 1]]", 1, ', "session_id": 3, "turn": 0, "think_s": 0')
            + ITEM % (1, 0, "[[1, 1]]", 1, ', "session_id": 2, "turn": 0, "think_s": 0'),
            "field session_id must rise, got 2 after 3",
        ),
        (read_items, ITEM % (4, 0, "[[1, 1]]", 1, "") * 2, "line 2: field index must rise, got 4 after 4"),
        (
            read_items,
            ITEM % (0, 5, "[[1, 1]]", 1, "") + ITEM % (1, 4, "[[1, 1]]", 1, ""),
            "field arrival_s must not fall, got 4 after 5",
        ),
        (
            read_items,
            ITEM % (0, 5, "[[1, 1]]", 1, "") + ITEM % (1, "null", "[[1, 1]]", 1, ""),
            "field arrival_s must be null on every line (closed loop) or on none",
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_field_limit_and_value(reader: Reader, text: str, message: str) -> None:
    assert message in refusal(reader, text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
FIELD_NAMES = "timestamp input_length output_length hash_ids index arrival_s prompt session_id turn think_s".split()
objects = st.dictionaries(st.sampled_from(FIELD_NAMES) | st.text(max_size=3), json_values).map(json.dumps)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([read_azure, read_burstgpt, read_mooncake, read_items]),
    st.lists(
        st.text(max_size=40) | objects | st.sampled_from((AZURE_2023 + BURSTGPT + MOONCAKE).splitlines()), max_size=6
    ),
)
@example(read_mooncake, ["\x00"])
def test_no_text_gets_more_than_a_refusal(reader: Reader, lines: list[str]) -> None:
    refusal = "my trace, line "
    try:
        for item in reader(lines, "my trace"):
            assert item.prompt_tokens >= 1
    except ConfigError as error:
        refusal = error.message
    assert refusal.startswith("my trace, line ")
