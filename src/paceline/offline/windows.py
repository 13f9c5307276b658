"""A text cut into windows for a model to be judged on, and the model's logits over them, a tile at a time.

Windows overlap: each begins `stride` tokens after the one before and scores the tokens that no earlier one scored. So
every token is scored once, and all but those of the first window have at least window - stride tokens before them.
Where the tokenizer begins texts with a token of its own, every window does. With stride 3 and windows of 5, no such:

    tokens   a b c d e f g h
    window 1 a[b c d e]           scored: in brackets
    window 2       d e[f g h]
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paceline.errors import ConfigError
from paceline.ops.protocol import Batch, Float32Array, Int32Array, Session

# A tile of logits and its float64 copies stay near this, whatever the vocabulary.
TILE_BYTES = 32 * 2**20
BYTES_PER_LOGIT = 8


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens from `first_scored` (at least 1) on are judged, each by the logits after the token before it."""

    tokens: Int32Array
    first_scored: int


def cut(tokens: Sequence[int], first: Sequence[int], size: int, stride: int) -> Iterator[Window]:
    """The windows of a text; `first`: what each begins with, part of its size. Raises ConfigError for sizes that don't
    fit, or a text of a single token.
    """
    room = size - len(first)
    if not 1 <= stride <= room or room < 2:
        raise ConfigError(f"--stride must be between 1 and the window's {room} tokens of text, got {stride}")
    if len(tokens) < 2:
        raise ConfigError(f"the text has {len(tokens)} tokens; at least 2 are needed to judge one")
    num_scored = 0
    for start in range(0, len(tokens), stride):
        end = min(start + room, len(tokens))
        # The very first token of a window has nothing before it to be judged by.
        first_scored = max(num_scored, start if first else start + 1)
        if first_scored < end:
            ids = np.array([*first, *tokens[start:end]], np.int32)
            yield Window(ids, len(first) + first_scored - start)
        num_scored = end
        if end == len(tokens):
            return


class WindowLogits:
    """A session with row 0 to itself, whose pool holds a window, as a source of logits."""

    def __init__(self, session: Session, num_blocks: int, max_tokens: int, vocab_size: int) -> None:
        """`max_tokens`: of a step. Two sources go through a window in the same tiles when it is the same for both."""
        self._session = session
        self._max_tokens = max_tokens
        self._block_tables = np.arange(num_blocks, dtype=np.int32)[None, :]
        self._tile_rows = max(1, TILE_BYTES // (BYTES_PER_LOGIT * vocab_size))
        self.vocab_size = vocab_size

    def tiles(self, window: Window) -> Iterator[Float32Array]:
        """The logits that judge the scored tokens, in order: [N, V] each."""
        num_computed = len(window.tokens) - 1
        for start in range(0, num_computed, self._max_tokens):
            end = min(start + self._max_tokens, num_computed)
            self._forward(window.tokens[start:end], start)
            for row in range(max(window.first_scored - 1 - start, 0), end - start, self._tile_rows):
                rows = np.arange(row, min(row + self._tile_rows, end - start), dtype=np.int32)
                yield self._session.logits(rows)

    def _forward(self, tokens: Int32Array, start: int) -> None:
        positions = np.arange(start, start + len(tokens), dtype=np.int32)
        row_starts = np.array([0, len(tokens)], np.int32)
        self._session.forward(Batch(tokens, positions, row_starts, np.zeros(1, np.int32), self._block_tables))
