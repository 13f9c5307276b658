"""Range checks of a workload's parameters. Errors name the parameter; the parsers put the option in front."""

import math

from paceline.errors import ConfigError


def check_range(name: str, value: float, low: float, high: float) -> None:
    """`value` is a finite number in [low, high]."""
    if not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} must be between {low:g} and {high:g}, got {value:g}")


def check_whole(name: str, value: float, low: int, high: int) -> None:
    """`value` is a whole number in [low, high]."""
    check_range(name, value, low, high)
    if value != int(value):
        raise ConfigError(f"{name} must be a whole number, got {value:g}")
