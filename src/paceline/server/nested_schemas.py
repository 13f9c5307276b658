"""JSON Schemas of fields that hold objects: structured output, tools, earlier calls. Their checks are in the modules
that read them (`structured.py`, `tool_request.py`, `tool_history.py`), their limits in `limits.py`.
"""

from typing import Any

from paceline.server import limits
from paceline.server.tool_request import CHOICES, NAME

Schema = dict[str, Any]

NULL: Schema = {"type": "null"}
TEXT: Schema = {"type": ["string", "null"]}
FLAG: Schema = {"type": ["boolean", "null"]}


def record(properties: Schema, *required: str) -> Schema:
    """An object with these fields and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def or_null(*kinds: Schema) -> Schema:
    """One of these, or null."""
    return {"anyOf": [*kinds, NULL]}


NAMED_SCHEMA = record(
    {"name": TEXT, "description": TEXT, "schema": {"type": ["object", "boolean"]}, "strict": FLAG}, "schema"
)
RESPONSE_FORMAT = or_null(
    record({"type": {"enum": ["text", "json_object"]}}, "type"),
    record({"type": {"enum": ["json_schema"]}, "json_schema": NAMED_SCHEMA}, "type", "json_schema"),
)
REGEX: Schema = {"type": "string", "minLength": 1, "maxLength": limits.MAX_REGEX_CHARS}
GRAMMAR: Schema = {"type": "string", "minLength": 1, "maxLength": limits.MAX_GRAMMAR_CHARS}
JSON_TEXT: Schema = {"type": ["object", "boolean", "string"]}
CHOICE: Schema = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": limits.MAX_FORCED_CHARS},
    "minItems": 1,
    "maxItems": limits.MAX_CHOICE_TEXTS,
}
WISHES = {"json": JSON_TEXT, "regex": REGEX, "choice": CHOICE, "grammar": GRAMMAR, "json_object": {"enum": [True]}}
ONE_WISH = or_null(
    *(
        record({name: wish, "disable_fallback": FLAG, "disable_any_whitespace": FLAG}, name)
        for name, wish in WISHES.items()
    )
)

FUNCTION_TYPE: Schema = {"enum": ["function"]}
FUNCTION_NAME: Schema = {"type": "string", "pattern": f"^{NAME.pattern}$"}
FUNCTION = record(
    {"name": FUNCTION_NAME, "description": TEXT, "parameters": {"type": ["object", "null"]}, "strict": FLAG}, "name"
)
TOOLS: Schema = {
    "type": ["array", "null"],
    "items": {
        "type": "object",
        "properties": {"type": FUNCTION_TYPE, "function": FUNCTION},
        "required": ["type", "function"],
    },
    "maxItems": limits.MAX_TOOLS,
}
TOOL_CHOICE: Schema = {
    "anyOf": [
        {"enum": [*CHOICES, None]},
        {
            "type": "object",
            "properties": {
                "type": FUNCTION_TYPE,
                "function": {"type": "object", "properties": {"name": FUNCTION_NAME}, "required": ["name"]},
            },
            "required": ["type", "function"],
        },
    ]
}
CALLED: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": limits.MAX_NAME_CHARS},
        "arguments": {"type": ["string", "object", "null"]},
    },
    "required": ["name"],
}
TOOL_CALLS: Schema = {
    "type": ["array", "null"],
    "items": {
        "type": "object",
        "properties": {"id": {"type": "string"}, "type": FUNCTION_TYPE, "function": CALLED},
        "required": ["id", "function"],
    },
    "maxItems": limits.MAX_CALLS,
}
