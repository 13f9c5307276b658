"""The formats in which models write tool calls, and which of them a chat template speaks."""

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum

from jinja2 import Environment

from paceline.text.answer_events import CallParser
from paceline.text.hermes_calls import CALL_TAG, HermesCalls
from paceline.text.llama_calls import PYTHON_TAG, LlamaCalls
from paceline.text.mistral_calls import CALLS_TAG, MistralCalls

# Formats that share Hermes' tag and put something else than JSON inside.
FOREIGN_MARKS = ("<function=", "<arg_key>")
LLAMA_MARKS = (PYTHON_TAG, "<|start_header_id|>")


class ToolFormat(StrEnum):
    """How a model writes a call; the values are vLLM's names of the parsers."""

    HERMES = "hermes"
    LLAMA3 = "llama3_json"
    MISTRAL = "mistral"


# Text that a call begins with; models have special tokens for it, which must not be left out of the text.
MARKERS = {
    ToolFormat.HERMES: (CALL_TAG, "</tool_call>"),
    ToolFormat.LLAMA3: (PYTHON_TAG,),
    ToolFormat.MISTRAL: (CALLS_TAG, "[CALL_ID]", "[ARGS]"),
}


@dataclass(frozen=True, slots=True)
class TemplateTools:
    """What a chat template does with tools: render the offered ones, render earlier calls, and teach a format.

    `call_format` is Hermes' where the template knows no tools, for `tool_prompt` teaches that; None: unknown.
    """

    renders_tools: bool
    renders_calls: bool
    call_format: ToolFormat | None

    @classmethod
    def of(cls, source: str | None) -> "TemplateTools":
        """Read off the source of a template that compiles: its words outside of text."""
        words = {(kind, value.strip("'\"")) for _, kind, value in Environment().lex(source or "")}
        renders_tools = ("name", "tools") in words
        return cls(
            renders_tools=renders_tools,
            renders_calls=("name", "tool_calls") in words or ("string", "tool_calls") in words,
            call_format=_taught_format(source) if source and renders_tools else ToolFormat.HERMES,
        )


def _taught_format(source: str) -> ToolFormat | None:
    if any(mark in source for mark in FOREIGN_MARKS):
        return None
    if CALL_TAG in source:
        return ToolFormat.HERMES
    if CALLS_TAG in source:
        return ToolFormat.MISTRAL
    return ToolFormat.LLAMA3 if any(mark in source for mark in LLAMA_MARKS) else None


def call_parser(tool_format: ToolFormat, names: Container[str], max_calls: int | None) -> CallParser:
    """A parser for one text of this format. `names`: the tools that were offered."""
    if tool_format is ToolFormat.LLAMA3:
        return LlamaCalls(names, max_calls)
    return MistralCalls(max_calls) if tool_format is ToolFormat.MISTRAL else HermesCalls(max_calls)
