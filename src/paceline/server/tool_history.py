"""Calls, results and thoughts of earlier messages, checked, as chat templates take them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from paceline.errors import RequestError
from paceline.server.body import Message
from paceline.server.checks import check_length, shown
from paceline.server.limits import MAX_CALLS, MAX_CALLS_BYTES, MAX_NAME_CHARS
from paceline.server.tool_body import EarlierCall
from paceline.text.tool_arguments import ToolArguments, parse_arguments

Extras = Mapping[str, Any]


def check_calls_size(messages: Sequence[Message]) -> None:
    """Refuse more bytes of calls than we would decode."""
    num_bytes = sum(len(memoryview(message.tool_calls)) for message in messages)
    if num_bytes > MAX_CALLS_BYTES:
        raise RequestError(
            f"tool_calls of all messages may have at most {MAX_CALLS_BYTES} bytes, got {num_bytes}", "messages"
        )


def message_extras(message: Message, param: str) -> Extras:
    """The keys of a message beside role and content; only what is there. Raises RequestError naming the field."""
    extras: dict[str, Any] = {}
    calls = decoded(message.tool_calls, list[EarlierCall] | None, f"{param}.tool_calls")
    if calls:
        if message.role != "assistant":
            raise RequestError(f"{param}.tool_calls belong to assistant messages", f"{param}.tool_calls")
        check_length(calls, MAX_CALLS, f"{param}.tool_calls", "calls")
        extras["tool_calls"] = [template_call(call, f"{param}.tool_calls[{index}]") for index, call in enumerate(calls)]
    thoughts = decoded(message.reasoning_content, str | None, f"{param}.reasoning_content")
    if thoughts and message.role == "assistant":
        extras["reasoning_content"] = thoughts
    if message.role == "tool":
        if message.tool_call_id is None:
            raise RequestError(f"{param}.tool_call_id is missing", f"{param}.tool_call_id")
        extras["tool_call_id"] = message.tool_call_id
        if message.name:
            extras["name"] = message.name
    return extras


def answer_calls(extras: Sequence[Extras]) -> list[Extras]:
    """The extras of all messages, each result with the name of its call. Raises RequestError for a result of none."""
    names: dict[str, str] = {}
    answered = []
    for index, extra in enumerate(extras):
        names |= {call["id"]: call["function"]["name"] for call in extra.get("tool_calls", ())}
        call_id = extra.get("tool_call_id")
        if call_id is not None and call_id not in names:
            param = f"messages[{index}].tool_call_id"
            raise RequestError(f"{param} {shown(call_id)} is the id of no earlier call", param)
        answered.append(extra if call_id is None else {"name": names[call_id], **extra})
    return answered


def template_call(call: EarlierCall, param: str) -> dict[str, Any]:
    """A call as chat templates expect it; its arguments serve as mapping and as text."""
    name = call.function.name
    if call.type != "function":
        raise RequestError(f"{param}.type must be function, got {shown(call.type)}", f"{param}.type")
    if not 0 < len(name) <= MAX_NAME_CHARS:
        raise RequestError(
            f"{param}.function.name must have 1 to {MAX_NAME_CHARS} characters, got {len(name)}",
            f"{param}.function.name",
        )
    arguments = call.function.arguments
    if not isinstance(arguments, dict):
        place = f"{param}.function.arguments"
        try:
            arguments = parse_arguments(arguments or "")
        except ValueError as error:
            raise RequestError(f"{place} must be the text of a JSON object: {error}", place) from None
    function = {"name": name, "arguments": ToolArguments(arguments)}
    return {"id": call.id, "type": "function", "function": function}


def decoded(raw: msgspec.Raw, kind: Any, param: str) -> Any:
    """The value of a field that was left raw. Raises RequestError naming the place inside it."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$")
        place = param + place.rstrip("`")
        raise RequestError(f"{place}: {what.replace('`', '')}", place) from None
    except RecursionError:
        raise RequestError(f"{param} is nested too deeply", param) from None
