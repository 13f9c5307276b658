"""Text of a growing token sequence, a token at a time.

Tokens carry bytes and may end inside a character, so an incomplete tail of bytes waits for its rest; bytes that no rest
can repair become U+FFFD at once. Joined deltas, `flush` included, equal the decoding of the whole. A push costs the
bytes of its token, however long the text has become.
"""

import codecs

from paceline.text.tokenizer import Tokenizer


class IncrementalText:
    """The text so far of one sequence, handed out as deltas."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        skip_special: bool = True,
        at_start: bool = False,
        kept_special_ids: frozenset[int] = frozenset(),
    ) -> None:
        """`at_start`: the tokens begin a text, so the space some models put before it is taken away.

        `kept_special_ids` are in the text even when special tokens are skipped.
        """
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids - kept_special_ids if skip_special else frozenset()
        self._strips_space = at_start and tokenizer.strips_first_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def shows(self, token_id: int) -> bool:
        """Whether the token adds to the text at all."""
        return token_id not in self._skipped

    @property
    def has_tail(self) -> bool:
        """Whether bytes wait for the rest of their character."""
        return bool(self._decoder.getstate()[0])

    def push(self, token_id: int) -> str:
        """The characters that are certain with this token and were not before."""
        if not self.shows(token_id):
            return ""
        return self._trimmed(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """The end of the text: an incomplete tail becomes U+FFFD."""
        return self._trimmed(self._decoder.decode(b"", True))

    def _trimmed(self, text: str) -> str:
        if self._strips_space and text:
            self._strips_space = False
            return text.removeprefix(" ")
        return text
