"""Facts and tables for the terminal. What files say of themselves is shown as text, never obeyed."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

MAX_CHARS = 200
# A pipe has no width: nothing is folded there, so that a path stays one word.
PIPE_WIDTH = 1_000
UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def shown(text: str, max_chars: int = MAX_CHARS) -> str:
    """Foreign text on one line: bounded, without control characters."""
    cut = text if len(text) <= max_chars else text[:max_chars] + "…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)


def bytes_text(num_bytes: int) -> str:
    """An amount of memory with three digits that count."""
    value, unit = float(num_bytes), 0
    while value >= 1024 and unit + 1 < len(UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.{0 if value >= 100 or unit == 0 else 1 if value >= 10 else 2}f} {UNITS[unit]}"


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> None:
    """One line a row; the first `num_left` columns are text, the others numbers."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index < num_left else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    _console().print(table)


def print_facts(facts: Mapping[str, str]) -> None:
    """A name and what is to be said of it, line by line."""
    width = max(map(len, facts))
    for name, fact in facts.items():
        print(f"{name:<{width}}  {fact}")


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
