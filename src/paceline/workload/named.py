"""A workload known by name: its lengths, what else is known, where the numbers come from and under what licence."""

from dataclasses import dataclass

from paceline.workload.arrivals import OpenLoop
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import Prefix
from paceline.workload.sessions import Sessions


@dataclass(frozen=True, slots=True)
class NamedWorkload:
    """`is_shape`: fitted by us to a few published numbers, not measured quantiles; `note` says which numbers and what
    we chose. `arrivals`, `prefix` and `sessions` are given where something is known of them.
    """

    name: str
    lengths: Lengths
    source: str
    licence: str
    is_shape: bool = False
    note: str = ""
    arrivals: OpenLoop | None = None
    prefix: Prefix | None = None
    sessions: Sessions | None = None
