"""The workloads known by name: measured tables and shapes."""

from paceline.errors import ConfigError
from paceline.workload.named import NamedWorkload
from paceline.workload.shapes import SHAPES
from paceline.workload.tables import TABLES

CATALOGUE = (*TABLES, *SHAPES)


def find_workload(name: str, option: str = "--workload") -> NamedWorkload:
    """The workload with this name. Raises ConfigError, with the names there are."""
    for known in CATALOGUE:
        if known.name == name:
            return known
    names = ", ".join(known.name for known in CATALOGUE)
    raise ConfigError(f"{option}: there is no workload named {name[:80]!r}; known: {names}")
