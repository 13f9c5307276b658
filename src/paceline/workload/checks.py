"""Range checks of a workload's parameters. Errors name the parameter; the parsers put the option in front."""

import math

from paceline.errors import ConfigError


def plain(value: float) -> str:
    """A number as a person writes it: counts in full, others to six digits."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else f"{value:g}"


def check_range(name: str, value: float, low: float, high: float) -> None:
    """`value` is a finite number in [low, high]."""
    if not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{name} must be between {plain(low)} and {plain(high)}, got {plain(value)}")


def check_whole(name: str, value: float, low: int, high: int) -> None:
    """`value` is a whole number in [low, high]."""
    check_range(name, value, low, high)
    if value != int(value):
        raise ConfigError(f"{name} must be a whole number, got {plain(value)}")
