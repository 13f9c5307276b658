"""Typed access to the key-value part of a checkpoint, where every value is somebody else's until checked."""

import reprlib
from collections.abc import Mapping
from typing import NoReturn

import numpy as np

from paceline.errors import CheckpointError


class Fields:
    """A mapping read by type. A missing key gives the default, or an error where None is passed for one."""

    def __init__(self, values: Mapping[str, object], where: str) -> None:
        self.values = values
        self.where = where

    def get(self, key: str) -> object:
        """The raw value; None when absent (JSON null counts as absent)."""
        return self.values.get(key)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer (not a boolean)."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """An integer or a float, as a float."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, "a number")
        return float(value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """True or False."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            self.fail(key, "a string")
        return value

    def require_neutral(self, neutral: Mapping[str, tuple[object, ...]]) -> None:
        """Refuse keys that would change the answer unless they are absent or hold a value that doesn't."""
        for key, values in neutral.items():
            value = self.get(key)
            if value is not None and (isinstance(value, np.ndarray) or value not in values):
                shown = reprlib.repr(value)
                raise CheckpointError(f"{self.where}: {key} is {shown}, which is not supported for this model family")

    def fail(self, key: str, needed: str) -> NoReturn:
        """Report the value of `key`."""
        raise CheckpointError(f"{self.where}: {key} is {reprlib.repr(self.get(key))}, must be {needed}")

    def _value(self, key: str, default: object) -> object:
        value = self.get(key)
        if value is None:
            if default is None:
                raise CheckpointError(f"{self.where}: {key} is missing")
            return default
        return value
