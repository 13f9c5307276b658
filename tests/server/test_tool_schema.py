"""Schemas that force calls are the functions' own, wherever they are put."""

import json
from typing import Any

import jsonschema
import pytest

from paceline.server.tool_schema import arguments_grammar, calls_grammar

PERSON: dict[str, Any] = {
    "type": "object",
    "description": "x" * 10_000,
    "properties": {
        "name": {"$ref": "#/$defs/text", "title": "Name"},
        "friend": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "description": {"type": "string"},
        "link": {"const": {"$ref": "#/data"}},
    },
    "required": ["name", "friend"],
    "additionalProperties": False,
    "$defs": {"text": {"type": "string", "minLength": 1}},
}
ANNA = {"name": "Anna", "friend": {"name": "Bo", "friend": None}, "description": "d", "link": {"$ref": "#/data"}}


def test_arguments_alone() -> None:
    schema = json.loads(arguments_grammar(PERSON).text)
    jsonschema.validate(ANNA, schema)
    assert len(json.dumps(schema)) < 1000
    for wrong in ({}, ANNA | {"friend": {"name": ""}}, ANNA | {"more": 1}, ANNA | {"link": {}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_a_list_of_calls() -> None:
    schema = json.loads(calls_grammar([("person", PERSON), ("now", None)], True).text)
    person, now = {"name": "person", "arguments": ANNA}, {"name": "now", "arguments": {}}
    jsonschema.validate([now, person, person], schema)
    lonely = {"name": "person", "arguments": ANNA | {"friend": {"name": "Bo"}}}
    for wrong in ([], person, [{"name": "now", "arguments": ANNA}], [{"name": "other", "arguments": {}}], [lonely]):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)


def test_one_call_when_calls_are_not_parallel() -> None:
    schema = json.loads(calls_grammar([("now", None)], False).text)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate([{"name": "now", "arguments": {}}] * 2, schema)
