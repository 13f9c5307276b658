"""From a body to the grammar it asks for: every field, two of them at once, and what is past a limit."""

import json
from typing import Any

import pytest

from paceline.core.request import Grammar, GrammarKind
from paceline.engine.contract import EngineLimits
from paceline.errors import RequestError
from paceline.server.limits import MAX_SCHEMA_DEPTH
from paceline.server.protocol import parse_chat, parse_completion

LIMITS = EngineLimits(1000, 1000, 16, 4, 1000, "scripted", 1)
SCHEMA = {"type": "object", "properties": {"größe": {"type": "integer"}}}
SCHEMA_TEXT = '{"type":"object","properties":{"größe":{"type":"integer"}}}'


def grammar_of(**fields: Any) -> Grammar | None:
    """As both routes read it."""
    chat = {"model": "m", "messages": [{"role": "user", "content": "a"}]} | fields
    completion = {"model": "m", "prompt": "a"} | fields
    found = parse_chat(json.dumps(chat).encode(), LIMITS).options.sampling.grammar
    assert parse_completion(json.dumps(completion).encode(), LIMITS).options.sampling.grammar == found
    return found


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as refused:
        grammar_of(**fields)
    return refused.value


def json_schema(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema} | fields}


JSON_SCHEMA, REGEX, CHOICE, LARK = GrammarKind.JSON_SCHEMA, GrammarKind.REGEX, GrammarKind.CHOICE, GrammarKind.LARK


@pytest.mark.parametrize(
    ("fields", "kind", "text", "param"),
    [
        ({"response_format": {"type": "json_object"}}, JSON_SCHEMA, '{"type":"object"}', "response_format"),
        ({"response_format": json_schema(SCHEMA, strict=True)}, JSON_SCHEMA, SCHEMA_TEXT, "response_format"),
        ({"response_format": json_schema(SCHEMA, strict=False)}, JSON_SCHEMA, SCHEMA_TEXT, "response_format"),
        ({"structured_outputs": {"json": SCHEMA}}, JSON_SCHEMA, SCHEMA_TEXT, "structured_outputs.json"),
        ({"structured_outputs": {"json": SCHEMA_TEXT}}, JSON_SCHEMA, SCHEMA_TEXT, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True, "disable_any_whitespace": True}},
         JSON_SCHEMA, '{"type":"object"}', "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": "a|é"}}, REGEX, "a|é", "structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a", "é"]}}, CHOICE, '["a","é"]', "structured_outputs.choice"),
        ({"structured_outputs": {"grammar": 'start: "a"'}}, LARK, 'start: "a"', "structured_outputs.grammar"),
        ({"guided_json": SCHEMA}, JSON_SCHEMA, SCHEMA_TEXT, "guided_json"),
        ({"guided_regex": "a"}, REGEX, "a", "guided_regex"),
        ({"guided_choice": ["a"]}, CHOICE, '["a"]', "guided_choice"),
        ({"guided_grammar": 'start: "a"'}, LARK, 'start: "a"', "guided_grammar"),
    ],
)  # fmt: skip
def test_each_field_gives_its_grammar(fields: dict[str, Any], kind: GrammarKind, text: str, param: str) -> None:
    found = grammar_of(**fields)
    assert found == Grammar(kind, text)
    assert found.param == param


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_plain_text_asks_for_no_grammar(value: Any) -> None:
    assert grammar_of(response_format=value, structured_outputs=None, guided_json=None, guided_choice=None) is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": SCHEMA}, "response_format": json_schema(SCHEMA)}, "structured_outputs.json"),
    ],
)
def test_two_wishes_at_once_are_refused(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert "send one of them" in error.message


def nested(depth: int) -> dict[str, Any]:
    return {"items": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"response_format": {"type": "xml"}}, "response_format", "'xml'"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
        ({"response_format": json_schema(None)}, "response_format.json_schema", "missing"),
        ({"response_format": json_schema([1])}, "response_format.json_schema.schema", "object"),
        ({"response_format": {"type": "json_object", "x": 1}}, "response_format.x", "unknown field"),
        ({"response_format": "json"}, "response_format", "expected object"),
        ({"structured_outputs": {}}, "structured_outputs", "must hold"),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern", "unknown field"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least one"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice[1]", "1 to 2000"),
        ({"structured_outputs": {"choice": ["a"] * 1001}}, "structured_outputs.choice", "at most 1000"),
        ({"guided_regex": "a" * 4001}, "guided_regex", "4000"),
        ({"guided_grammar": "a" * 20_001}, "guided_grammar", "20000"),
        ({"guided_json": "{"}, "guided_json", "not valid JSON"),
        ({"guided_json": nested(MAX_SCHEMA_DEPTH + 1)}, "guided_json", "64 levels"),
        ({"guided_json": "[" * 20_000}, "guided_json", "64 levels"),
        ({"guided_json": {"enum": list(range(5001))}}, "guided_json", "5000 values"),
        ({"guided_json": {"const": "a" * 2001}}, "guided_json", "guided_json.const: strings may have at most 2000"),
        ({"guided_json": {"properties": {"a" * 2001: {}}}}, "guided_json", "at most 2000"),
        ({"guided_json": {"const": "a" * 70_000}}, "guided_json", "65536 bytes"),
    ],
)
def test_what_is_wrong_or_past_a_limit_is_refused_by_name(fields: dict[str, Any], param: str, words: str) -> None:
    error = refusal(**fields)
    assert error.param == param
    assert words in error.message
    assert len(error.message) < 500


def test_a_schema_as_deep_as_the_limit_is_taken() -> None:
    assert grammar_of(guided_json=nested(MAX_SCHEMA_DEPTH)) is not None


def test_b045_an_empty_range_names_its_path() -> None:
    error = refusal(guided_json={"properties": {"a": {"items": {"minimum": 5, "exclusiveMaximum": 1}}}})
    assert error.message == "guided_json.properties.a.items: no number is at least 5 and at most 1"


def test_b045_bounds_out_of_reach_are_narrowed_where_answers_still_satisfy_the_schema() -> None:
    far = {"minimum": -1e30, "maximum": 9223372036854775808}
    schema = {"properties": {"minimum": far}, "enum": [{"maximum": 1e30}]}
    found = grammar_of(guided_json=schema)
    assert found is not None
    assert json.loads(found.text) == {
        "properties": {"minimum": {"minimum": -(10**18), "maximum": 10**18}},
        "enum": [{"maximum": 1e30}],
    }


@pytest.mark.parametrize(("keyword", "bound"), [("minimum", 1e30), ("exclusiveMaximum", -(10**19))])
def test_b045_bounds_that_leave_nothing_in_reach_name_keyword_and_path(keyword: str, bound: float) -> None:
    error = refusal(response_format=json_schema({"properties": {"a": {"type": "integer", keyword: bound}}}))
    assert error.param == "response_format.json_schema.schema"
    assert f"schema.properties.a.{keyword}: no number beyond 1e+18" in error.message
