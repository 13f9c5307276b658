"""From a request's wish for structured output to the grammar that its output must match.

Read here: OpenAI's `response_format`, vLLM's `structured_outputs` and its older `guided_*` fields. One wish a request.
`strict` is accepted and changes nothing: a schema is always enforced whole, and one that can't be is refused.
"""

from collections.abc import Iterator

import msgspec

from paceline.core.request import Grammar, GrammarKind
from paceline.errors import RequestError, UnsupportedFieldError
from paceline.server.body import Body
from paceline.server.checks import check_length, shown
from paceline.server.limits import MAX_CHOICE_TEXTS, MAX_FORCED_CHARS, MAX_GRAMMAR_CHARS, MAX_REGEX_CHARS
from paceline.server.schema import parse_schema
from paceline.server.structured_fields import ResponseFormat, StructuredOutputs

ANY_OBJECT = '{"type":"object"}'


def parse_grammar(body: Body) -> Grammar | None:
    """The grammar asked for, or None. Raises RequestError for two of them, or for one past a limit."""
    wishes = list(all_wishes(body))
    if len(wishes) > 1:
        raise RequestError(f"{wishes[0].param} and {wishes[1].param} both ask for structured output; send one of them",
                           wishes[1].param)  # fmt: skip
    return wishes[0] if wishes else None


def all_wishes(body: Body) -> Iterator[Grammar]:
    """Every grammar the body asks for."""
    if body.response_format is not None:
        yield from response_format(body.response_format)
    outputs = body.structured_outputs
    if outputs is not None:
        found = list(wishes_of(outputs, "structured_outputs."))
        if outputs.json_object:
            found.append(Grammar(GrammarKind.JSON_SCHEMA, ANY_OBJECT, "structured_outputs.json_object"))
        if not found:
            raise RequestError("structured_outputs must hold json, regex, choice, grammar or json_object",
                               "structured_outputs")  # fmt: skip
        yield from found
    older = StructuredOutputs(body.guided_json, body.guided_regex, body.guided_choice, body.guided_grammar)
    yield from wishes_of(older, "guided_")


def response_format(asked: ResponseFormat) -> Iterator[Grammar]:
    """OpenAI's field."""
    param = "response_format"
    if asked.type == "json_schema":
        if asked.json_schema is None or bytes(asked.json_schema.schema) == b"null":
            raise RequestError("response_format.json_schema.schema is missing", f"{param}.json_schema")
        schema = parse_schema(bytes(asked.json_schema.schema), f"{param}.json_schema.schema")
        yield Grammar(GrammarKind.JSON_SCHEMA, schema, param)
    elif asked.type == "json_object":
        yield Grammar(GrammarKind.JSON_SCHEMA, ANY_OBJECT, param)
    elif asked.type == "structural_tag":
        raise UnsupportedFieldError("response_format.type structural_tag is not supported by this server", param)
    elif asked.type != "text":
        raise RequestError(
            f"response_format.type must be text, json_object or json_schema, got {shown(asked.type)}", param
        )


def wishes_of(asked: StructuredOutputs, prefix: str) -> Iterator[Grammar]:
    """The four kinds that vLLM's two generations of fields share; their names begin with `prefix`."""
    if bytes(asked.json) != b"null":
        yield Grammar(GrammarKind.JSON_SCHEMA, schema_or_text(bytes(asked.json), f"{prefix}json"), f"{prefix}json")
    if asked.regex is not None:
        check_chars(asked.regex, MAX_REGEX_CHARS, f"{prefix}regex")
        yield Grammar(GrammarKind.REGEX, asked.regex, f"{prefix}regex")
    if asked.choice is not None:
        check_choices(asked.choice, f"{prefix}choice")
        yield Grammar(GrammarKind.CHOICE, msgspec.json.encode(asked.choice).decode(), f"{prefix}choice")
    if asked.grammar is not None:
        check_chars(asked.grammar, MAX_GRAMMAR_CHARS, f"{prefix}grammar")
        yield Grammar(GrammarKind.LARK, asked.grammar, f"{prefix}grammar")


def schema_or_text(raw: bytes, param: str) -> str:
    """A schema, or, as vLLM allows, its text in a JSON string."""
    return parse_schema(msgspec.json.decode(raw, type=str).encode() if raw.startswith(b'"') else raw, param)


def check_chars(text: str, most: int, param: str) -> None:
    """Not empty, and not longer than `most`."""
    if not 0 < len(text) <= most:
        raise RequestError(f"{param} must have 1 to {most} characters, got {len(text)}", param)


def check_choices(choices: list[str], param: str) -> None:
    """At least one, none empty, none too long."""
    if not choices:
        raise RequestError(f"{param} must hold at least one text", param)
    check_length(choices, MAX_CHOICE_TEXTS, param, "texts")
    for index, choice in enumerate(choices):
        check_chars(choice, MAX_FORCED_CHARS, f"{param}[{index}]")
