"""One choice of an answer: token ids from the engine become text, stop strings end it, logprobs travel with their text.

Text is held back while it could still become a stop string, and tokens are held back with it, so that no logprob tells
what the text does not. A token that ended the choice (end of sequence, stop token) is counted and not shown.
"""

import codecs
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.core.output import SequenceOutput
from paceline.core.plan import TokenLogprobs
from paceline.core.request import FinishReason
from paceline.server.options import Options
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token and the piece of text it added."""

    text: str
    scored: TokenLogprobs


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What a choice shows next. `tokens` only when logprobs were asked for; `finish_reason` once, last."""

    index: int
    text: str
    tokens: tuple[ShownToken, ...]
    finish_reason: str | None


class Choice:
    """The text of one choice so far, but for what it has already shown."""

    def __init__(self, tokenizer: Tokenizer, options: Options, index: int) -> None:
        self.num_tokens = 0
        self.finish_reason: str | None = None
        self.is_stopped_by_string = False
        self._index = index
        self._tokenizer = tokenizer
        self._options = options
        self._shows_tokens = options.sampling.num_logprobs is not None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held_text = ""
        self._num_shown_chars = 0
        self._held_tokens: deque[tuple[ShownToken, int]] = deque()  # each with where its text starts

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be shown."""
        return self.finish_reason is not None

    def push(self, output: SequenceOutput) -> ChoiceDelta:
        """Take the engine's news; returns what may be shown now. Tokens past a stop string are not counted."""
        ends_by_token = output.finish_reason is FinishReason.STOP and not self._options.ending.includes_stop_string
        for position, scored in enumerate(output.tokens, 1):
            self.num_tokens += 1
            if ends_by_token and position == len(output.tokens):
                break
            self._append(scored)
            cut = self._stop_position()
            if cut is not None:
                self.is_stopped_by_string = True
                return self._show(cut, str(FinishReason.STOP))
        if output.finish_reason is None:
            return self._show(len(self._held_text) - self._num_held_chars(), None)
        self._held_text += self._decoder.decode(b"", final=True)
        return self._show(len(self._held_text), str(output.finish_reason))

    def _append(self, scored: TokenLogprobs) -> None:
        is_hidden = self._options.skips_special_tokens and scored.token_id in self._tokenizer.special_ids
        text = "" if is_hidden else self._decoder.decode(self._tokenizer.token_bytes(scored.token_id))
        if self._shows_tokens:
            self._held_tokens.append((ShownToken(text, scored), self._num_shown_chars + len(self._held_text)))
        self._held_text += text

    def _stop_position(self) -> int | None:
        """Where the text must be cut: at the first stop string in it, if there is one."""
        if self.num_tokens <= self._options.sampling.min_tokens:
            return None
        found = [
            (start, len(stop))
            for stop in self._options.ending.stop_strings
            if (start := self._held_text.find(stop)) >= 0
        ]
        if not found:
            return None
        start, length = min(found)
        return start + length if self._options.ending.includes_stop_string else start

    def _num_held_chars(self) -> int:
        """How many characters at the end could be the beginning of a stop string."""
        held = 0
        for stop in self._options.ending.stop_strings:
            for length in range(min(len(stop) - 1, len(self._held_text)), held, -1):
                if self._held_text.endswith(stop[:length]):
                    held = length
                    break
        return held

    def _show(self, num_chars: int, finish_reason: str | None) -> ChoiceDelta:
        """Take the first `num_chars` held characters, and the tokens that lie in them, cut where the text is cut."""
        text, self._held_text = self._held_text[:num_chars], self._held_text[num_chars:]
        self._num_shown_chars += num_chars
        self.finish_reason = finish_reason
        return ChoiceDelta(self._index, text, tuple(self._take_tokens()), finish_reason)

    def _take_tokens(self) -> Iterator[ShownToken]:
        """The held tokens whose text has been shown; at the end also the one that the cut goes through."""
        while self._held_tokens:
            token, start = self._held_tokens[0]
            num_chars = self._num_shown_chars - start
            if len(token.text) > num_chars and not (self.is_finished and num_chars > 0):
                return
            self._held_tokens.popleft()
            yield ShownToken(token.text[:num_chars], token.scored)
