"""The fields of a body that ask for structured output, as they come: types checked, values not yet."""

import msgspec

ABSENT = msgspec.Raw(b"null")


class NamedSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The schema of a `response_format`."""

    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = ABSENT
    strict: bool | None = None


class ResponseFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's field: text, json_object or json_schema."""

    type: str
    json_schema: NamedSchema | None = None


class StructuredOutputs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's field: one of five. The last two ask for what is always so here."""

    json: msgspec.Raw = ABSENT
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_fallback: bool | None = None
    disable_any_whitespace: bool | None = None
