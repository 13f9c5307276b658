"""What one rendering of a chat template may cost, in work and in time."""

import time
from collections.abc import ItemsView, KeysView, ValuesView
from typing import Any, NamedTuple

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

MAX_WORK = 1 << 25
MAX_RENDER_S = 1.0
MAX_INTEGER_BITS = 1024
# Python hashes nested tuples by recursion in C, unguarded.
MAX_DEPTH = 128
# A slot of a list or mapping, in characters' worth of work.
SLOT_WORK = 4
CONTAINERS = (list, tuple, set, dict, KeysView, ValuesView, ItemsView)


class BudgetExceededError(Exception):
    """A template did more work, or took longer, than any chat template needs."""


class Budget:
    """What one rendering may still do. A unit is about one character copied or one step taken."""

    def __init__(self) -> None:
        self._work_left = MAX_WORK
        self._deadline_s = time.monotonic() + MAX_RENDER_S

    def charge(self, work: int) -> None:
        """Take work off the budget. Raises BudgetExceededError when it, or the time, is used up."""
        self._work_left -= work
        if self._work_left < 0:
            raise BudgetExceededError(f"more than {MAX_WORK} characters and steps")
        if time.monotonic() > self._deadline_s:
            raise BudgetExceededError(f"longer than {MAX_RENDER_S} s")

    def charge_result(self, value: Any) -> None:
        """Charge a step that made `value`."""
        if isinstance(value, str):
            self.charge(1 + len(value))
        elif isinstance(value, CONTAINERS):
            self.charge(1 + SLOT_WORK * len(value))
        elif isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
            raise BudgetExceededError(f"an integer of more than {MAX_INTEGER_BITS} bits")
        else:
            self.charge(1)

    def charge_deep(self, value: Any) -> "Extent":
        """Charge reading all of a value, shared parts as often as they occur."""
        pending, size, depths = [(value, 0)], 0, 0
        while pending:
            item, depth = pending.pop()
            if depth > MAX_DEPTH:
                raise BudgetExceededError(f"values nested more than {MAX_DEPTH} deep")
            if isinstance(item, Namespace):
                raise SecurityError("a namespace can only be read by attribute")
            step = 1 + len(item) if isinstance(item, str) else 1
            self.charge(step)
            size, depths = size + step, depths + depth
            if isinstance(item, dict):
                pending.extend((key, depth + 1) for key in item)
                pending.extend((part, depth + 1) for part in item.values())
            elif isinstance(item, CONTAINERS):
                pending.extend((part, depth + 1) for part in item)
        return Extent(size, depths)


class Extent(NamedTuple):
    """Characters and parts of a value, and the sum of its parts' depths (what indenting it by one adds)."""

    size: int
    depths: int
