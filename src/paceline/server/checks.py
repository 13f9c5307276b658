"""Small checks of one value each; they raise RequestError naming the field, the limit and the value."""

from collections.abc import Iterable, Sequence, Sized

from paceline.errors import RequestError
from paceline.server.limits import MAX_VALUE_SHOWN_CHARS


def check_range(value: float, low: float, high: float, param: str) -> None:
    """`value` lies in [low, high]."""
    if not low <= value <= high:
        raise RequestError(f"{param} must be between {low} and {high}, got {shown(value)}", param)


def check_length(items: Sized, most: int, param: str, what: str) -> None:
    """There are at most `most` items."""
    if len(items) > most:
        raise RequestError(f"{param} may hold at most {most} {what}, got {len(items)}", param)


def check_token_ids(token_ids: Sequence[int], vocab_size: int, param: str) -> None:
    """Every id is in the vocabulary."""
    if not token_ids:
        return
    low, high = min(token_ids), max(token_ids)
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise RequestError(f"{param} holds token id {shown(wrong)}; ids of this model are 0 to {vocab_size - 1}", param)


def shown(value: object) -> str:
    """The value as a short text, whatever its size."""
    if isinstance(value, int) and not -(10**MAX_VALUE_SHOWN_CHARS) < value < 10**MAX_VALUE_SHOWN_CHARS:
        return f"a number of more than {MAX_VALUE_SHOWN_CHARS} digits"
    text = repr(value)
    return text if len(text) <= MAX_VALUE_SHOWN_CHARS else text[:MAX_VALUE_SHOWN_CHARS] + "…"


def listed(names: Iterable[str]) -> str:
    """Names for a message, sorted and quoted."""
    return ", ".join(repr(name) for name in sorted(names))
