"""What each field of a request may be, as JSON Schema: types from `body.py`, limits from `limits.py`, lists of names
from `fields.py`. A test sends what lies just inside and just outside of these limits to a real server.

What depends on two fields at once (max_tokens beside the prompt's length, min_tokens beside max_tokens) can't be said
here; `docs/api.md` says it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from paceline.engine.contract import EngineLimits
from paceline.server import limits
from paceline.server.body import Body, ContentPart, DetokenizeBody, EmbeddingBody, Message, TokenizeBody
from paceline.server.fields import CHAT, COMPLETION, DETOKENIZE, EMBEDDING, METADATA, NEUTRAL, TOKENIZE
from paceline.server.nested_schemas import (
    CHOICE,
    GRAMMAR,
    JSON_TEXT,
    NULL,
    ONE_WISH,
    REGEX,
    RESPONSE_FORMAT,
    TOOL_CALLS,
    TOOL_CHOICE,
    TOOLS,
    Schema,
)
from paceline.server.protocol import EMPTY_VALUES, ROLES, UNSERVED_MESSAGE_FIELDS
from paceline.text.stops import MAX_STOP_CHARS, MAX_STOPS
from paceline.text.template import RESERVED_NAMES

REFERENCE = "#/components/schemas/{name}"
MESSAGES: Schema = {
    "type": "array",
    "items": {"$ref": REFERENCE.format(name="Message")},
    "minItems": 1,
    "maxItems": limits.MAX_MESSAGES,
}
STOP: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_STOP_CHARS}
NO_CALLS: Schema = {"enum": [None, []]}
TEXT_OR_MESSAGES = [
    {"required": [given], "properties": {given: {"not": NULL}, other: NULL}}
    for given, other in (("prompt", "messages"), ("messages", "prompt"))
]
PENALTY: Schema = {"minimum": -limits.MAX_PENALTY, "maximum": limits.MAX_PENALTY}
INT32: Schema = {"minimum": -limits.MAX_INT32, "maximum": limits.MAX_INT32}

# Field → what its type alone does not say.
FIELD_LIMITS: Mapping[str, Schema] = {
    "n": {"minimum": 1, "maximum": limits.MAX_CHOICES},
    "temperature": {"minimum": 0, "maximum": limits.MAX_TEMPERATURE},
    "top_p": {"exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"minimum": -1, "maximum": limits.MAX_INT32},
    "min_p": {"minimum": 0, "maximum": 1},
    "seed": {"minimum": limits.MIN_SEED, "maximum": limits.MAX_SEED},
    "presence_penalty": PENALTY,
    "frequency_penalty": PENALTY,
    "repetition_penalty": {"exclusiveMinimum": 0, "maximum": limits.MAX_REPETITION_PENALTY},
    "top_logprobs": {"minimum": 0, "maximum": limits.MAX_LOGPROBS},
    "prompt_logprobs": {"minimum": 0, "maximum": limits.MAX_LOGPROBS},
    "max_completion_tokens": {"minimum": 1},
    "min_tokens": {"minimum": 0},
    "priority": INT32,
    "cache_salt": {"minLength": 1, "maxLength": limits.MAX_CACHE_SALT_CHARS},
    "truncate_prompt_tokens": {"minimum": -1, "maximum": limits.MAX_INT32, "not": {"const": 0}},
    "chat_template_kwargs": {
        "maxProperties": limits.MAX_TEMPLATE_VARIABLES,
        "propertyNames": {"not": {"enum": sorted(RESERVED_NAMES)}},
    },
    "stop": {"anyOf": [STOP, {"type": "array", "items": STOP, "maxItems": MAX_STOPS}, NULL]},
    "messages": MESSAGES,
    "tools": TOOLS,
    "tool_choice": TOOL_CHOICE,
    "response_format": RESPONSE_FORMAT,
    "structured_outputs": ONE_WISH,
    "guided_json": {"anyOf": [JSON_TEXT, NULL]},
    "guided_regex": {"anyOf": [REGEX, NULL]},
    "guided_choice": {"anyOf": [CHOICE, NULL]},
    "guided_grammar": {"anyOf": [GRAMMAR, NULL]},
}


def request_schemas(facts: EngineLimits, names: Sequence[str]) -> dict[str, Schema]:
    """The schemas of all request bodies and what they refer to, by name."""
    shared = field_limits(facts, names)
    context = facts.effective_context
    chat = shared | {"logprobs": {"type": ["boolean", "null"]}, "max_tokens": {"minimum": 1, "maximum": context}}
    completion = shared | {
        "logprobs": {"type": ["integer", "null"], "minimum": 0, "maximum": limits.MAX_LOGPROBS},
        "max_tokens": {"minimum": 0, "maximum": context},
        "prompt": prompt_schema(token_schema(facts)),
    }
    embedding = shared | {
        "input": prompt_schema(token_schema(facts)),
        "encoding_format": {"enum": ["float", "base64", None]},
        "dimensions": {"minimum": 1, "maximum": facts.embedding_width},
    }
    any_model = shared | {"model": {"enum": [*names, None]}}
    tokenize = any_model | {"messages": {"anyOf": [MESSAGES, NULL]}}
    return {
        "ChatCompletionRequest": body_schema(Body, CHAT, chat, ("model", "messages")),
        "CompletionRequest": body_schema(Body, COMPLETION, completion, ("model", "prompt")),
        "EmbeddingRequest": body_schema(EmbeddingBody, EMBEDDING, embedding, ("model", "input")),
        "TokenizeRequest": body_schema(TokenizeBody, TOKENIZE, tokenize, ()) | {"anyOf": TEXT_OR_MESSAGES},
        "DetokenizeRequest": body_schema(DetokenizeBody, DETOKENIZE, any_model, ("tokens",)),
        "Message": message_schema(),
        **components(shared),
    }


def components(overridden: Mapping[str, Schema]) -> dict[str, Schema]:
    """What the types of `Body`'s fields refer to, but for those that are described by hand."""
    kinds = [item.type for item in msgspec.structs.fields(Body) if not is_whole(overridden.get(item.name, {}))]
    return msgspec.json.schema_components(kinds, ref_template=REFERENCE)[1]


def field_limits(facts: EngineLimits, names: Sequence[str]) -> dict[str, Schema]:
    """`FIELD_LIMITS` with those that the model sets."""
    token = token_schema(facts)
    return {
        **FIELD_LIMITS,
        "model": {"enum": list(names)},
        "stop_token_ids": {"items": token, "maxItems": limits.MAX_STOP_TOKENS},
        "tokens": {"items": token, "maxItems": max(facts.effective_context, limits.MAX_LISTED_TOKENS)},
        "logit_bias": {
            "propertyNames": {"pattern": "^[0-9]{1,10}$"},
            "additionalProperties": {
                "type": "number",
                "minimum": -limits.MAX_LOGIT_BIAS_VALUE,
                "maximum": limits.MAX_LOGIT_BIAS_VALUE,
            },
            "maxProperties": limits.MAX_LOGIT_BIAS,
        },
    }


def token_schema(facts: EngineLimits) -> Schema:
    """A token id of the model."""
    return {"type": "integer", "minimum": 0, "maximum": facts.vocab_size - 1}


def prompt_schema(token: Schema) -> Schema:
    """A prompt, or an input to embed: text, token ids, or several of one kind."""
    ids = {"type": "array", "items": token, "minItems": 1}
    several: Schema = {"type": "array", "minItems": 1, "maxItems": limits.MAX_PROMPTS}
    text = {"type": "string"}
    return {"anyOf": [text, ids, {**several, "items": text}, {**several, "items": ids}]}


def body_schema(
    struct: type[msgspec.Struct], served: Iterable[str], extras: Mapping[str, Schema], required: Iterable[str]
) -> Schema:
    """One route's body: its fields, the neutral values of others, and metadata. Nothing else is taken."""
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    properties = {name: served_field(types[name], extras.get(name, {})) for name in sorted(served)}
    for name, values in NEUTRAL.items():
        properties.setdefault(name, {"enum": list(values), "description": "Only what asks for nothing is taken."})
    for name in sorted(METADATA):
        properties.setdefault(name, {"description": "Taken and ignored."})
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def served_field(kind: Any, extra: Schema) -> Schema:
    """A field's schema: that of its type, null told as one of the types where that is possible, and `extra`."""
    if is_whole(extra):
        return dict(extra)
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=REFERENCE)
    variants = schema.get("anyOf", [])
    if len(variants) == 2 and variants[1] == NULL and "type" in variants[0]:
        schema = {**variants[0], "type": [variants[0]["type"], "null"]}
    return {**schema, **extra}


def other_turn(role: str) -> Schema:
    """A message of another role than the assistant's has content and no calls; a result has the id of its call."""
    properties: Schema = {"role": {"enum": [role]}, "content": {"type": ["string", "array"]}, "tool_calls": NO_CALLS}
    if role != "tool":
        return {"properties": properties, "required": ["content"]}
    return {"properties": properties | {"tool_call_id": {"type": "string"}}, "required": ["content", "tool_call_id"]}


def is_whole(extra: Schema) -> bool:
    """Whether an entry stands for the field's type too."""
    return bool(extra.keys() & {"anyOf", "enum", "type"})


def message_schema() -> Schema:
    """One message of a conversation."""
    part = {
        "type": "object",
        "properties": {"type": {"enum": ["text"]}, "text": {"type": "string"}},
        "required": [field.name for field in msgspec.structs.fields(ContentPart)],
    }
    content = [{"type": "string"}, {"type": "array", "items": part, "maxItems": limits.MAX_CONTENT_PARTS}, NULL]
    empty = {"enum": [msgspec.json.decode(value) for value in EMPTY_VALUES]}
    extras: dict[str, Schema] = dict.fromkeys(UNSERVED_MESSAGE_FIELDS, empty)
    extras |= {"role": {"enum": list(ROLES)}, "content": {"anyOf": content}}
    extras |= {"tool_calls": TOOL_CALLS, "reasoning_content": {"type": ["string", "null"]}}
    types = {field.name: field.type for field in msgspec.structs.fields(Message)}
    properties = {name: served_field(kind, extras.get(name, {})) for name, kind in types.items()}
    others = [role for role in ROLES if role != "assistant"]
    return {
        "type": "object",
        "properties": properties,
        "required": ["role"],
        "anyOf": [{"properties": {"role": {"enum": ["assistant"]}}}, *map(other_turn, others)],
        "additionalProperties": False,
    }
