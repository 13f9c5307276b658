"""What a user calls hardware, as figures: a card of the catalogue, or this machine, measured."""

from paceline.costs.estimator import DEFAULT_EFFICIENCY
from paceline.costs.hardware import Hardware, find_hardware
from paceline.engine.machine_speed import measure_this_machine
from paceline.errors import ConfigError

THIS_MACHINE = "this"


def card_named(name: str, remedy: str = "") -> Hardware:
    """The card of the catalogue, or this machine, measured. Raises ConfigError, with what else can be done."""
    if name == THIS_MACHINE:
        return measure_this_machine()
    try:
        return find_hardware(name)
    except ConfigError as error:
        raise ConfigError(f"{error.message}, or {THIS_MACHINE}: this machine, measured{remedy}") from None


def efficiency_of(hardware: str) -> float:
    """The share of the figures to expect where the user has not said: all of what was measured."""
    return 1.0 if hardware == THIS_MACHINE else DEFAULT_EFFICIENCY
