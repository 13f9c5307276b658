"""The text of one choice: its tokens go in, what a client may see comes out.

Composes incremental decoding and stop strings, and keeps tokens and text together: each token has its own part of the
text (the parts joined are the text before it was cut), and is handed out once all of its part is. When a stop string
completes, `num_tokens` counts the tokens up to the one that completed it: the engine is told to keep these, and
whatever was sampled past them is dropped.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.text.incremental import IncrementalText
from paceline.text.stops import StopScanner, StopStrings
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenText:
    """One token's part of the text, at `offset`, and its bytes. A token that only begins a character has no part."""

    token_id: int
    text: str
    offset: int
    raw: bytes

    @property
    def end(self) -> int:
        """Offset just past its part."""
        return self.offset + len(self.text)


@dataclass(frozen=True, slots=True)
class TextPiece:
    """News of a choice: text to append, tokens whose parts are now all shown, and the stop string that ended it."""

    text: str
    tokens: tuple[TokenText, ...]
    stop: str | None


NO_STOPS = StopStrings(())


class ChoiceText:
    """The state of one choice's text. After a piece with `stop`, or `finish`, nothing more may be pushed."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        stops: StopStrings = NO_STOPS,
        skip_special: bool = True,
        at_start: bool = False,
        start_offset: int = 0,
        kept_special_ids: frozenset[int] = frozenset(),
    ) -> None:
        """`at_start`: the tokens begin a text (an echoed prompt). Offsets count from `start_offset`."""
        self._tokenizer = tokenizer
        self._text = IncrementalText(tokenizer, skip_special, at_start, kept_special_ids)
        self._scanner = StopScanner(stops)
        self._start_offset = start_offset
        self._decoded = start_offset
        self._waiting: deque[TokenText] = deque()
        self._last_shown = 0
        self.num_tokens = 0
        self.is_finished = False

    def push(self, token_id: int, is_shown: bool = True) -> TextPiece:
        """Take the next token. `is_shown` False counts it but leaves its text out (the stop token at an end)."""
        assert not self.is_finished, "a token was pushed to a choice that has ended"
        delta = self._text.push(token_id) if is_shown else ""
        raw = self._tokenizer.token_bytes(token_id)
        self._waiting.append(TokenText(token_id, delta, self._decoded, raw))
        self.num_tokens += 1
        if is_shown and raw and self._text.shows(token_id):
            self._last_shown = self.num_tokens
        return self._piece(delta, self._scanner.push(delta))

    def finish(self) -> TextPiece:
        """The sequence has ended: everything still held back, unless a stop string is in it."""
        assert not self.is_finished, "a choice ended twice"
        tail = self._text.flush()
        if tail:
            self._give_tail(tail)
        shown = self._scanner.push(tail)
        piece = self._piece(tail, shown)
        if self.is_finished:
            return piece
        self.is_finished = True
        last = self._piece("", self._scanner.flush())
        return TextPiece(piece.text + last.text, (*piece.tokens, *last.tokens), last.stop)

    def _piece(self, delta: str, shown: str) -> TextPiece:
        self._decoded += len(delta)
        match = self._scanner.match
        if match is not None:
            self._drop_past(self._start_offset + match.end)
        return TextPiece(shown, self._released(), None if match is None else match.stop)

    def _drop_past(self, end: int) -> None:
        """Forget the tokens after the one whose text reaches `end`, where the stop string was complete."""
        self.is_finished = True
        kept: deque[TokenText] = deque()
        while self._waiting:
            kept.append(self._waiting.popleft())
            if kept[-1].end >= end:
                break
        self.num_tokens -= len(self._waiting)
        self._waiting = kept

    def _released(self) -> tuple[TokenText, ...]:
        """Tokens all of whose text is shown; all that are left once finished."""
        limit = self._start_offset + self._scanner.num_emitted
        if self.is_finished:
            limit = self._decoded
        elif self._text.has_tail:  # the last token may yet get U+FFFD for its text
            limit = min(limit, self._decoded - 1)
        tokens: list[TokenText] = []
        while self._waiting and self._waiting[0].end <= limit:
            tokens.append(self._waiting.popleft())
        return tuple(tokens)

    def _give_tail(self, tail: str) -> None:
        """Bytes that stayed incomplete belong to the last token that showed any; later tokens move back."""
        later = [self._waiting.pop() for _ in range(self.num_tokens - self._last_shown)]
        owner = self._waiting.pop()
        self._waiting.append(replace(owner, text=owner.text + tail))
        self._waiting.extend(replace(token, offset=token.offset + len(tail)) for token in reversed(later))


def prompt_texts(tokenizer: Tokenizer, ids: Sequence[int], has_added_bos: bool) -> tuple[TokenText, ...]:
    """The tokens of a prompt with their parts of its text, special tokens shown, for echo.

    `has_added_bos`: the first id was added in encoding and is no part of the text.
    """
    text = ChoiceText(tokenizer, skip_special=False, at_start=True)
    tokens: list[TokenText] = []
    for index, token_id in enumerate(ids):
        tokens.extend(text.push(token_id, is_shown=index > 0 or not has_added_bos).tokens)
    return (*tokens, *text.finish().tokens)
