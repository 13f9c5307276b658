"""Arguments of an earlier tool call, as chat templates want them: some loop over a mapping, some append a string."""

import json
from typing import Any


class ToolArguments(dict[str, Any]):
    """A mapping that is its own JSON wherever a template treats it as text, so that both kinds of template agree."""

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __add__(self, text: object) -> str:
        return str(self) + text if isinstance(text, str) else NotImplemented

    def __radd__(self, text: object) -> str:
        return text + str(self) if isinstance(text, str) else NotImplemented


def parse_arguments(text: str) -> ToolArguments:
    """The arguments a client sent as text; "" is none. Raises ValueError when it isn't a JSON object."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant) if text.strip() else {}
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"it is a JSON {type(value).__name__}")
    return ToolArguments(value)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
