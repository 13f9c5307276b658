"""One choice of an answer: what the engine says about a sequence becomes what a client may see of it.

The text itself is `text.choice`'s business; this adds how the engine says that a sequence has ended, and logprobs. A
token that ended the choice (end of sequence, stop token) is counted and not shown; of tokens in a stop string that was
cut, only what lies before the cut is shown, so that no logprob tells what the text does not.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.core.output import SequenceOutput
from paceline.core.plan import TokenLogprobs
from paceline.core.request import FinishReason
from paceline.server.options import Options
from paceline.text.choice import ChoiceText, TextPiece
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ShownToken:
    """A token and the piece of text it added."""

    text: str
    scored: TokenLogprobs


@dataclass(frozen=True, slots=True)
class ChoiceDelta:
    """What a choice shows next. `tokens` only when someone shows or counts them; `finish_reason` once, last.

    `token_ids` only when asked for: of a whole choice they are the tokens that usage counts.
    """

    index: int
    text: str
    tokens: tuple[ShownToken, ...]
    finish_reason: str | None
    token_ids: tuple[int, ...] = ()


class Choice:
    """The state of one choice."""

    def __init__(self, tokenizer: Tokenizer, options: Options, index: int) -> None:
        self.is_finished = False
        self.is_stopped_by_string = False
        self._index = index
        self._shows_stop_token = options.ending.includes_stop_string
        self._shows_tokens = options.keeps_tokens or options.sampling.num_logprobs is not None
        self._shows_ids = options.returns_token_ids
        self._text = ChoiceText(
            tokenizer, options.ending.stops, options.skips_special_tokens, kept_special_ids=options.kept_special_ids
        )
        self._num_hidden_tokens = 0
        self._num_shown_chars = 0
        self._scored: deque[TokenLogprobs] = deque()

    @property
    def num_tokens(self) -> int:
        """Tokens sampled, up to and with the one that ended the choice."""
        return self._text.num_tokens + self._num_hidden_tokens

    def push(self, output: SequenceOutput) -> ChoiceDelta:
        """Take the engine's news; returns what may be shown now. Tokens past a stop string are not counted."""
        tokens = output.tokens
        hidden: tuple[int, ...] = ()
        if output.finish_reason is FinishReason.STOP and not self._shows_stop_token:
            hidden = (tokens[-1].token_id,)
            tokens = tokens[:-1]
        text = ""
        shown: list[ShownToken] = []
        token_ids: list[int] = []
        for piece in self._pieces(tokens, is_last=output.finish_reason is not None):
            text += piece.text
            shown += self._shown_tokens(piece)
            if self._shows_ids:
                token_ids += [token.token_id for token in piece.tokens]
        reason = None
        if self.is_stopped_by_string:
            reason = str(FinishReason.STOP)
        elif self.is_finished:
            reason = str(output.finish_reason)
            self._num_hidden_tokens = len(hidden)
            token_ids += hidden if self._shows_ids else ()
        return ChoiceDelta(self._index, text, tuple(shown), reason, tuple(token_ids))

    def _pieces(self, tokens: Sequence[TokenLogprobs], is_last: bool) -> Iterator[TextPiece]:
        """The text that tokens add, up to a stop string; after the last ones also what was held back."""
        for scored in tokens:
            if self._shows_tokens:
                self._scored.append(scored)
            piece = self._text.push(scored.token_id)
            self.is_finished = self.is_stopped_by_string = piece.stop is not None
            yield piece
            if self.is_finished:
                return
        if is_last:
            piece = self._text.finish()
            self.is_finished, self.is_stopped_by_string = True, piece.stop is not None
            yield piece

    def _shown_tokens(self, piece: TextPiece) -> Iterator[ShownToken]:
        """The tokens of a piece with their logprobs, cut where a stop string cut the text."""
        self._num_shown_chars += len(piece.text)
        if not self._shows_tokens:
            return
        for token in piece.tokens:
            scored = self._scored.popleft()
            if piece.stop is None:
                yield ShownToken(token.text, scored)
            elif token.offset < self._num_shown_chars:
                yield ShownToken(token.text[: self._num_shown_chars - token.offset], scored)
