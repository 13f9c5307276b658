"""Command-line options kept as a dataclass: typer shows its fields, a command gets one value."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, get_type_hints


def with_fields(options: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let typer see the fields of the dataclass `options` in place of a command's first parameter, which is one."""
    hints = get_type_hints(options, include_extras=True)
    names = [field.name for field in fields(options)]
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(options)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            first = options(**{name: given.pop(name) for name in names})
            command(first, **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        called.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
        return called

    return decorate
