"""Fields of a trace's lines, checked: every error names the trace, the line, the field, what is allowed and the value.

Traces come from outside. Lines and numbers are bounded here; a caller that opens a file of unknown origin reads it with
a bounded `readline`, since a line must be read before its length can be seen.
"""

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from paceline.errors import ConfigError

MAX_LINE_CHARS = 2**20
MAX_TOKENS = 2**24
MAX_TIME_S = 1e9
MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Line:
    """One line: where it stands, and its text."""

    trace: str
    number: int
    text: str

    def fail(self, message: str) -> NoReturn:
        """Raises ConfigError at this line."""
        raise ConfigError(f"{self.trace}, line {self.number}: {message}")


def numbered_lines(lines: Iterable[str], trace: str) -> Iterator[Line]:
    """The lines that aren't blank, from number 1, each no longer than MAX_LINE_CHARS."""
    for number, text in enumerate(lines, 1):
        line = Line(trace, number, text.removeprefix("\ufeff").strip() if number == 1 else text.strip())
        if len(text) > MAX_LINE_CHARS:
            line.fail(f"longer than {MAX_LINE_CHARS} characters")
        if line.text:
            yield line


@dataclass(frozen=True, slots=True)
class Row:
    """The fields of one line by name. `is_text`: they came from CSV, so numbers are written as texts."""

    line: Line
    values: dict[str, Any]
    is_text: bool

    def get(self, name: str) -> Any:
        """The field, which must be there."""
        if name not in self.values:
            self.line.fail(f"field {name} is missing; there are: {', '.join(self.values)[:200]}")
        return self.values[name]

    def whole(self, name: str, low: int, high: int) -> int:
        """A field that is a whole number in [low, high]."""
        return self.check_whole(name, self.get(name), low, high)

    def number(self, name: str, low: float, high: float) -> float:
        """A field that is a finite number in [low, high]."""
        given = self.get(name)
        value = _to_number(given, self.is_text)
        if value is None or not low <= value <= high:
            self.line.fail(f"field {name} must be a number from {low:g} to {high:g}, got {shown(given)}")
        return value

    def check_whole(self, name: str, given: Any, low: int, high: int) -> int:
        """`given` as a whole number in [low, high]; `name` says where in the line it stands."""
        value = _to_whole(given, self.is_text)
        if value is None or not low <= value <= high:
            self.line.fail(f"field {name} must be a whole number from {low} to {high}, got {shown(given)}")
        return value


def csv_rows(lines: Iterable[str], trace: str) -> Iterator[Row]:
    """Rows of a CSV without quoting (none of the published traces quotes), fields named by its header line."""
    header: list[str] | None = None
    for line in numbered_lines(lines, trace):
        cells = [cell.strip() for cell in line.text.split(",")]
        if header is None:
            header = cells
        elif len(cells) != len(header):
            line.fail(f"{len(cells)} fields, but the header names {len(header)}")
        else:
            yield Row(line, dict(zip(header, cells, strict=True)), is_text=True)


def json_rows(lines: Iterable[str], trace: str) -> Iterator[Row]:
    """Rows of a JSONL file: one object a line."""
    for line in numbered_lines(lines, trace):
        try:
            values = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            line.fail(f"not JSON ({str(error)[:100]}): {shown(line.text)}")
        if not isinstance(values, dict):
            line.fail(f"must be a JSON object, got {shown(line.text)}")
        yield Row(line, values, is_text=False)


def shown(value: Any) -> str:
    """A value as an error shows it: short."""
    text = repr(value[:MAX_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _to_whole(given: Any, is_text: bool) -> int | None:
    if is_text:
        return int(given) if given.isascii() and given.isdecimal() and len(given) <= 30 else None
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _to_number(given: Any, is_text: bool) -> float | None:
    if is_text != isinstance(given, str) or isinstance(given, bool) or not isinstance(given, str | int | float):
        return None
    try:
        value = float(given)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
