"""Commands with many options: a parameter that is a dataclass is shown to typer as its fields, one option each."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer sees it. Field names must differ between groups; a field's annotation is its option."""
    own = tuple(inspect.signature(command, eval_str=True).parameters.values())
    groups: dict[str, Any] = {
        parameter.name: parameter.annotation for parameter in own if is_dataclass(parameter.annotation)
    }

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    shown = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in own
        for option in (options_of(groups[parameter.name]) if parameter.name in groups else [parameter])
    ]
    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # typer reads it
    called.__annotations__ = {option.name: option.annotation for option in shown}
    return called


def options_of(group: Any) -> Iterator[inspect.Parameter]:
    """The fields of a dataclass as parameters, with their defaults."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[field.name]
        )
