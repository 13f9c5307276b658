"""The JSON schemas that force a call: of one function's arguments, or of a list of calls of any function."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.core.request import Grammar, GrammarKind
from paceline.server.schema import parse_schema

Schema = Mapping[str, Any]

NO_PARAMETERS: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
# Their values are data: a "$ref" in them refers to nothing.
DATA_KEYS = frozenset(("const", "enum", "default", "example", "examples"))
REMARKS = frozenset(("title", "description", "$comment"))


def arguments_grammar(parameters: Schema | None) -> Grammar:
    """The text is one function's arguments."""
    schema = NO_PARAMETERS if parameters is None else moved(parameters, "#")
    return schema_grammar(schema)


def calls_grammar(functions: Sequence[tuple[str, Schema | None]], is_parallel: bool) -> Grammar:
    """The text is a list of calls of these functions; of exactly one call unless `is_parallel`."""
    definitions = {}
    calls = []
    for index, (name, parameters) in enumerate(functions):
        place = f"#/$defs/{index}"
        definitions[str(index)] = NO_PARAMETERS if parameters is None else moved(parameters, place)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "arguments": {"$ref": place}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    schema = {"type": "array", "items": {"anyOf": calls}, "minItems": 1, "$defs": definitions}
    if not is_parallel:
        schema["maxItems"] = 1
    return schema_grammar(schema)


def schema_grammar(schema: Schema) -> Grammar:
    """The grammar of a schema made of tools. Raises RequestError when it passes a limit of grammars."""
    return Grammar(GrammarKind.JSON_SCHEMA, parse_schema(json.dumps(schema).encode(), "tools"), "tools")


def moved(schema: Any, place: str) -> Any:
    """The schema as a part of another, at the pointer `place`: references to its own root follow it there.

    What is written for readers is left out; it would count against the limits of grammars.
    """
    if isinstance(schema, list):
        return [moved(item, place) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        key: value if key in DATA_KEYS else moved(value, place)
        for key, value in schema.items()
        if not (key in REMARKS and isinstance(value, str))
    }
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        result["$ref"] = place + reference.removeprefix("#")
    return result
