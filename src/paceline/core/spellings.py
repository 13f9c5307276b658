"""How a model's tokens are spelled: what a grammar must know of a tokenizer that the engine otherwise never sees."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spellings:
    """`token_bytes[id]` is what the id adds to a text, empty where no token has the id.

    `eos_ids` end a generation, the first is the one the engine writes itself. `special_ids` are never part of a text.
    """

    token_bytes: tuple[bytes, ...]
    eos_ids: tuple[int, ...]
    special_ids: tuple[int, ...]
