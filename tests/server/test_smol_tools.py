"""Forced tool calls on the real model: whatever it would have said, it calls, with arguments that fit the schema."""

import json
from typing import Any

import jsonschema
import pytest

from running_server import RunningServer

CITY = {"type": "string", "enum": ["Ulm", "Zürich", "Łódź"]}
WEATHER = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/city"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"city": CITY},
}
SEARCH = {
    "type": "object",
    "properties": {
        "words": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 1, "maxItems": 3}
    },
    "required": ["words"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "weather": WEATHER,
    "search": SEARCH,
    "now": {"type": "object", "additionalProperties": False},
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": WEATHER, "strict": True}},
    {"type": "function", "function": {"name": "search", "parameters": SEARCH}},
    {"type": "function", "function": {"name": "now", "description": "The time."}},
]
SEEDS = range(4)


def asked(seed: int, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "How warm will it be in Ulm for the next three days?"}]
    sampling = {"seed": seed, "temperature": 1.2 if seed else 0, "max_tokens": 300}
    return {"model": "smollm2-135m", "messages": messages, "tools": TOOLS, **sampling, **fields}


def check(choice: Any) -> list[str]:
    """The names called, arguments checked."""
    assert choice.message.content is None
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    return [call.function.name for call in choice.message.tool_calls]


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_named_function_is_called(smol: RunningServer, name: str) -> None:
    with smol.openai() as client:
        for seed in SEEDS:
            choice = {"type": "function", "function": {"name": name}}
            answer = client.chat.completions.create(**asked(seed, tool_choice=choice))
            assert check(answer.choices[0]) == [name]


def test_some_function_is_called(smol: RunningServer) -> None:
    with smol.openai() as client:
        for seed in SEEDS:
            request = asked(seed, tool_choice="required", parallel_tool_calls=False)
            whole = client.chat.completions.create(**request)
            assert len(check(whole.choices[0])) == 1
            with client.chat.completions.stream(**request, stream_options={"include_usage": True}) as stream:
                streamed = stream.get_final_completion()
            assert check(streamed.choices[0]) == check(whole.choices[0])
            for one, other in zip(
                streamed.choices[0].message.tool_calls or [], whole.choices[0].message.tool_calls or [], strict=True
            ):
                assert one.function.arguments == other.function.arguments  # type: ignore[union-attr]
            assert streamed.usage == whole.usage


def test_several_calls_fit_their_schemas(smol: RunningServer) -> None:
    with smol.openai() as client:
        answer = client.chat.completions.create(**asked(1, tool_choice="required", n=3, max_tokens=400))
    for choice in answer.choices:
        calls = choice.message.tool_calls or []
        assert calls
        if choice.finish_reason == "length":  # the model went on calling until its limit
            calls.pop()
        for call in calls:
            jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])  # type: ignore[union-attr]


def test_a_response_format_beside_a_forced_call_changes_nothing(smol: RunningServer) -> None:
    with smol.openai() as client:
        request = asked(0, tool_choice="required", response_format={"type": "json_object"})
        check(client.chat.completions.create(**request, parallel_tool_calls=False).choices[0])


def test_a_schema_that_no_grammar_can_be_made_of_is_refused(smol: RunningServer) -> None:
    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": pattern}}]
    refused = smol.post("chat/completions", asked(0, tools=tools, tool_choice="required"))
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
