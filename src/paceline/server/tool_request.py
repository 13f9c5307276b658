"""The tools of a chat request, checked: what the model is offered, and whether it is forced to call."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paceline.core.request import Grammar
from paceline.errors import RequestError, UnsupportedFieldError
from paceline.server.body import Body, TokenizeBody
from paceline.server.checks import check_length, listed, shown
from paceline.server.limits import MAX_SCHEMA_DEPTH, MAX_TOOLS
from paceline.server.options import Options
from paceline.server.tool_body import Tool, ToolChoice, ToolFunction
from paceline.server.tool_schema import arguments_grammar, calls_grammar

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHOICES = ("none", "auto", "required")


@dataclass(frozen=True, slots=True)
class ForcedCall:
    """The answer must be calls: of one function, or of any (`name` None). `grammar` is what it must match."""

    name: str | None
    grammar: Grammar


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says of tools. `tools` as templates take them; `forced` None: the model decides."""

    tools: tuple[Mapping[str, object], ...]
    names: frozenset[str]
    is_parallel: bool
    forced: ForcedCall | None


def parse_tool_use(body: Body | TokenizeBody) -> ToolUse | None:
    """The tools of a body; None when there are none, or the model is told to use none. Raises RequestError."""
    functions = parse_functions(body.tools or [])
    names = frozenset(function.name for function in functions)
    choice = parse_choice(body.tool_choice, names)
    if not functions or choice == "none":
        return None
    is_parallel = body.parallel_tool_calls is not False
    return ToolUse(
        tools=tuple(map(template_tool, functions)),
        names=names,
        is_parallel=is_parallel,
        forced=forced_call(choice, functions, is_parallel),
    )


def with_forced_call(options: Options, use: ToolUse | None) -> Options:
    """The options with the grammar of a forced call, which takes the place of a response_format: there's no content."""
    if use is None:
        return options
    sampling = options.sampling
    if use.forced is not None:
        return replace(options, sampling=replace(sampling, grammar=use.forced.grammar))
    if sampling.grammar is not None:
        param = sampling.grammar.param
        raise RequestError(f"{param} leaves no room for tool calls; send tool_choice none, or required", param)
    return options


def parse_functions(tools: Sequence[Tool]) -> list[ToolFunction]:
    """The functions of `tools`, each checked, names unique."""
    check_length(tools, MAX_TOOLS, "tools", "tools")
    functions: list[ToolFunction] = []
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        param = f"tools[{index}]"
        if tool.type != "function":
            raise UnsupportedFieldError(f"{param}.type must be function, got {shown(tool.type)}", f"{param}.type")
        if tool.function is None:
            raise RequestError(f"{param}.function is missing", f"{param}.function")
        check_function(tool.function, f"{param}.function")
        if tool.function.name in seen:
            raise RequestError(
                f"{param}.function.name {shown(tool.function.name)} occurs twice; names must differ",
                f"{param}.function.name",
            )
        seen.add(tool.function.name)
        functions.append(tool.function)
    return functions


def check_function(function: ToolFunction, param: str) -> None:
    """A function's name, and that its parameters are the schema of an object."""
    if NAME.fullmatch(function.name) is None:
        raise RequestError(
            f"{param}.name must be 1 to 64 letters, digits, _ or -, got {shown(function.name)}", f"{param}.name"
        )
    if function.parameters is None:
        return
    kind = function.parameters.get("type", "object")
    if kind != "object":
        raise RequestError(f"{param}.parameters must be of type object, got {shown(kind)}", f"{param}.parameters")
    check_depth(function.parameters, f"{param}.parameters")


def check_depth(value: Any, param: str) -> None:
    """Objects and lists are nested at most MAX_SCHEMA_DEPTH deep."""
    pending = [(value, 1)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_SCHEMA_DEPTH:
            raise RequestError(f"{param} may be nested at most {MAX_SCHEMA_DEPTH} deep", param)
        parts = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        pending.extend((part, depth + 1) for part in parts)


def parse_choice(choice: str | ToolChoice | None, names: frozenset[str]) -> str | ToolChoice:
    """The tool choice, checked against the names that are offered."""
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice not in CHOICES:
            raise RequestError(
                f"tool_choice must be {', '.join(CHOICES)} or a function, got {shown(choice)}", "tool_choice"
            )
        if choice == "required" and not names:
            raise RequestError("tool_choice required needs tools", "tool_choice")
        return choice
    if choice.type != "function":
        raise UnsupportedFieldError(
            f"tool_choice.type {shown(choice.type)} is not supported; name a function, or send required",
            "tool_choice.type",
        )
    if choice.function is None:
        raise RequestError("tool_choice.function is missing", "tool_choice.function")
    if choice.function.name not in names:
        known = listed(names) if names else "none"
        raise RequestError(
            f"tool_choice.function.name {shown(choice.function.name)} is not in tools, which have: {known}",
            "tool_choice.function.name",
        )
    return choice


def template_tool(function: ToolFunction) -> Mapping[str, object]:
    """A tool as chat templates expect it, keys in the order models were trained on."""
    fields = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {"type": "function", "function": {key: value for key, value in fields.items() if value is not None}}


def forced_call(choice: str | ToolChoice, functions: Sequence[ToolFunction], is_parallel: bool) -> ForcedCall | None:
    """What a tool choice forces; None for auto."""
    if choice == "required":
        pairs = [(function.name, function.parameters) for function in functions]
        return ForcedCall(None, calls_grammar(pairs, is_parallel))
    if isinstance(choice, ToolChoice):
        assert choice.function is not None, "checked by parse_choice"
        name = choice.function.name
        (parameters,) = (function.parameters for function in functions if function.name == name)
        return ForcedCall(name, arguments_grammar(parameters))
    return None
