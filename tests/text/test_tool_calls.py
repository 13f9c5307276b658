"""Tool calls are found in a model's text, and how the text is cut into pieces never shows."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config import TOOL_CALL_PARSERS
from paceline.text.answer_events import AnswerEvent, CallArguments, CallParser, CallStart, Content
from paceline.text.forced_calls import ForcedList, NamedCall
from paceline.text.hermes_calls import HermesCalls
from paceline.text.llama_calls import LlamaCalls
from paceline.text.mistral_calls import MistralCalls
from paceline.text.tool_formats import TemplateTools, ToolFormat

NAMES = frozenset({"weather", "now"})
PARSERS: dict[str, Callable[[], CallParser]] = {
    "hermes": HermesCalls,
    "llama3_json": lambda: LlamaCalls(NAMES),
    "mistral": MistralCalls,
    "forced": ForcedList,
}
ARGUMENTS = '{"q": "say \\"é } ] {\\" twice", "deep": {"list": [1, -2.5e3, {"a": null}], "t": true}}'
FIRST = '{"name": "now", "arguments": {}}'
SECOND = f'{{"name": "weather", "arguments": {ARGUMENTS}}}'
# Two calls, one with {} and one with nested quotes, braces and é, text before and after.
TWO_CALLS = {
    "hermes": f"Let me look. <tool_call>\n{FIRST}\n</tool_call>\n<tool_call>{SECOND}</tool_call> Done.",
    "llama3_json": f"Let me look. <|python_tag|>{FIRST};{SECOND.replace('arguments', 'parameters')} Done.",
    "mistral": f"Let me look. [TOOL_CALLS] [{FIRST}, {SECOND}] Done.",
}


@dataclass
class Assembled:
    """What a client adds up from the deltas."""

    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


def assembled(events: Sequence[AnswerEvent]) -> Assembled:
    whole = Assembled()
    for event in events:
        match event:
            case Content(text):
                whole.content += text
            case CallStart(index, name):
                assert index == len(whole.calls)
                whole.calls.append((name, ""))
            case CallArguments(index, text):
                assert index == len(whole.calls) - 1
                whole.calls[index] = (whole.calls[index][0], whole.calls[index][1] + text)
    return whole


def parsed(parser: CallParser, pieces: Sequence[str]) -> Assembled:
    events = [event for piece in pieces for event in parser.push(piece)]
    return assembled(events + parser.finish())


def cut(text: str, places: Sequence[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *sorted(places), len(text)])]


@pytest.mark.parametrize("name", TWO_CALLS)
def test_b049_a_stream_of_calls_does_not_depend_on_where_chunks_fall(name: str) -> None:
    text = TWO_CALLS[name]
    expected = Assembled("Let me look.  Done.", [("now", "{}"), ("weather", ARGUMENTS)])
    assert parsed(PARSERS[name](), [text]) == expected
    assert parsed(PARSERS[name](), list(text)) == expected
    for place in range(len(text)):
        assert parsed(PARSERS[name](), cut(text, [place])) == expected, place
    draw = random.Random(49)
    for _ in range(500):
        places = draw.sample(range(len(text)), draw.randrange(2, 40))
        assert parsed(PARSERS[name](), cut(text, places)) == expected, places


FRAGMENTS = [
    "<tool_call>", "</tool_call>", "<tool_", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "<|py", "weather",
    "now", " ", "\n", ";", ",", "[", "]", "{", "}", '"', '"name"', '"arguments"', '"parameters"', ": ", FIRST, SECOND,
    "null", "1.5", "tru", "\\", "é", "text", '{"name": "weather", "arguments": {"a": ', '{"arguments": {"b": 1}, ',
    '"arguments": "{}"', '"name": "now"}',
]  # fmt: skip


@pytest.mark.parametrize("name", PARSERS)
@given(fragments=st.lists(st.sampled_from(FRAGMENTS), max_size=12), data=st.data())
def test_any_text_gives_the_same_however_it_is_cut(name: str, fragments: list[str], data: st.DataObject) -> None:
    text = "".join(fragments)
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=10))
    whole = parsed(PARSERS[name](), [text])
    assert parsed(PARSERS[name](), cut(text, places)) == whole
    assert parsed(PARSERS[name](), list(text)) == whole
    if not whole.calls:
        assert whole.content == text


MALFORMED = {
    "hermes": [
        "<tool_call>weather</tool_call>",
        '<tool_call>{"name": "weather", </tool_call>',
        '<tool_call>{"nome": "weather", "arguments": {}}</tool_call>',
        '<tool_call>{"name": 7, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "weather", "arguments": "{oops"}</tool_call>',
        '<tool_call>{"name": "wea',
        "a <tool_call",
    ],
    "llama3_json": [
        '{"name": "Bob", "parameters": {"of": "an answer that is JSON"}}',
        '{"answer": 42}',
        '<|python_tag|>weather.call(city="Ulm")',
        'Well, {"name": "weather", "parameters": {}}',
    ],
    "mistral": ["[TOOL_CALLS]", "[TOOL_CALLS] nothing", "[TOOL_CALLS][]", '[TOOL_CALLS][{"name": "wea', "[TOOL_C"],
    "forced": ["", "{}", '[{"name": "wea'],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MALFORMED.items() for text in texts])
def test_what_is_no_call_is_content_and_nothing_is_lost(name: str, text: str) -> None:
    assert parsed(PARSERS[name](), [text]) == Assembled(text)


def test_a_call_that_breaks_off_keeps_what_was_sent_and_the_rest_is_content() -> None:
    text = '<tool_call>{"name": "now", "arguments": {"a": oops}}</tool_call>'
    assert parsed(HermesCalls(), [text]) == Assembled("oops}}</tool_call>", [("now", '{"a": ')])


def test_a_call_cut_short_by_the_end_has_the_arguments_so_far() -> None:
    assert parsed(HermesCalls(), ['<tool_call>{"name": "now", "arguments": {"a": "b']).calls == [("now", '{"a": "b')]


def test_arguments_are_handed_out_while_they_are_written() -> None:
    parser = HermesCalls()
    parser.push('<tool_call>{"name": "now", "arguments": {"a": ')
    assert parser.push('"long') == [CallArguments(0, '"long')]


@pytest.mark.parametrize(
    "call",
    [
        '{"arguments": {"a": 1}, "name": "now"}',
        '{"id": 7, "type": "function", "name": "now", "arguments": {"a": 1}}',
        '{"name": "now", "parameters": {"a": 1}, "more": [1, {"name": "other"}]}',
        '{"name": "now", "arguments": "{\\"a\\": 1}"}',
        '{"\\u006eame": "now", "arguments": {"a": 1}}',
    ],
)
def test_spellings_of_a_call(call: str) -> None:
    text = f"<tool_call>\n{call}\n</tool_call>"
    (found,) = parsed(HermesCalls(), [text]).calls
    assert (found[0], json.loads(found[1])) == ("now", {"a": 1})
    assert parsed(HermesCalls(), list(text)).calls == [found]


@pytest.mark.parametrize("rest", ["", ', "arguments": null', ', "arguments": ""'])
def test_missing_arguments_are_an_empty_object(rest: str) -> None:
    text = f'<tool_call>{{"name": "now"{rest}}}</tool_call>'
    assert parsed(HermesCalls(), [text]) == Assembled("", [("now", "{}")])


def test_a_missing_end_tag_loses_no_call() -> None:
    assert parsed(HermesCalls(), [f"<tool_call>{FIRST}\n<tool_call>{FIRST} and"]) == Assembled(
        " and", [("now", "{}"), ("now", "{}")]
    )


def test_mistral_s_newer_form() -> None:
    text = f"[TOOL_CALLS]now[CALL_ID]k3j5h2g1f[ARGS]{{}}[TOOL_CALLS]weather[ARGS]{ARGUMENTS}[TOOL_CALLS]now{{}}"
    expected = Assembled("", [("now", "{}"), ("weather", ARGUMENTS), ("now", "{}")])
    assert parsed(MistralCalls(), [text]) == parsed(MistralCalls(), list(text)) == expected


def test_only_the_first_call_when_calls_are_not_parallel() -> None:
    text = TWO_CALLS["hermes"]
    assert parsed(HermesCalls(1), [text]) == Assembled("Let me look.  Done.", [("now", "{}")])


def test_forced_calls() -> None:
    assert parsed(ForcedList(), [f"[{FIRST}, {SECOND}]"]) == Assembled("", [("now", "{}"), ("weather", ARGUMENTS)])
    assert parsed(NamedCall("weather"), list(" " + ARGUMENTS)) == Assembled("", [("weather", ARGUMENTS)])


def tools(renders_tools: bool, renders_calls: bool, call_format: str | None) -> TemplateTools:
    return TemplateTools(renders_tools, renders_calls, None if call_format is None else ToolFormat(call_format))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (None, tools(False, False, "hermes")),
        ("{{ messages }} {# tools #} tools {{ 'tools' }}", tools(False, False, "hermes")),
        ("{{ tools }}<tool_call>{{ m['tool_calls'] }}", tools(True, True, "hermes")),
        ("{% if tools is defined %}{{ m.tool_calls }}<tool_call><function=", tools(True, True, None)),
        ("{% set t = tools %}[TOOL_CALLS]", tools(True, False, "mistral")),
        ("{{ tools }}<|start_header_id|>", tools(True, False, "llama3_json")),
        ("{{ tools }}<|tool_calls_begin|>", tools(True, False, None)),
    ],
)
def test_the_template_tells_what_it_does_with_tools(source: str | None, expected: TemplateTools) -> None:
    assert TemplateTools.of(source) == expected


def test_every_format_has_its_option() -> None:
    assert tuple(ToolFormat) == TOOL_CALL_PARSERS
