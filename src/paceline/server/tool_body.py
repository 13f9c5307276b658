"""The fields of a request body that concern tools, as they come: types checked, values not yet."""

from typing import Any

import msgspec


class ToolFunction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function the model may call. `parameters` is a JSON schema; absent means none."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True):
    """One tool; only functions are served."""

    type: str = "function"
    function: ToolFunction | None = None


class ChosenFunction(msgspec.Struct, frozen=True):
    """The function of a named tool choice."""

    name: str


class ToolChoice(msgspec.Struct, frozen=True):
    """A tool choice that is an object: one function by name."""

    type: str
    function: ChosenFunction | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """The function of an earlier call. Arguments are JSON text in OpenAI's API; some clients send the object."""

    name: str
    arguments: str | dict[str, Any] | None = None


class EarlierCall(msgspec.Struct, frozen=True):
    """A call in the history, as our answers have them."""

    id: str
    function: CalledFunction
    type: str = "function"
