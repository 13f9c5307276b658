"""Text to token ids and back.

The `tokenizers` library splits and merges; this room adds what a server needs beside it: which ids are special, which
end a generation, whether a beginning-of-sequence id goes first, and the exact bytes each id adds to a text. Bytes are
the ground truth of decoding: a token may end in the middle of a character, so text is only made from joined bytes.
Built by `gguf_tokenizer` or `folder_tokenizer`; changes nothing after that and may be shared by threads.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tokenizers import Tokenizer as Backend

from paceline.errors import RequestError

# Tokens that end a turn or a document in the published vocabularies, whatever the checkpoint calls its end token.
END_PIECES = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|return|>",
        "<end_of_turn>",
        "<EOT>",
        "</s>",
    }
)
WORD_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Spelling(StrEnum):
    """How a vocabulary writes bytes: each as one printable character (GPT-2), or as text with marked spaces."""

    BYTE_LEVEL = "byte-level"
    MARKED_SPACES = "marked spaces"


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What is known about each id. `pieces[id]` is None for an id that no token has.

    `literal_ids` are spelled as they read (special and user-defined tokens); `special_ids` are left out of text unless
    asked for. `strips_first_space`: encoding puts a space before the text, so decoding takes one away.
    """

    pieces: Sequence[str | None]
    spelling: Spelling
    literal_ids: frozenset[int]
    special_ids: frozenset[int]
    eos_ids: frozenset[int]
    bos_id: int | None
    eos_id: int | None
    add_bos: bool
    add_eos: bool
    strips_first_space: bool


class Tokenizer:
    """One model's tokenizer."""

    def __init__(self, backend: Backend, vocabulary: Vocabulary) -> None:
        self._backend = backend
        self._pieces = vocabulary.pieces
        self._vocabulary = vocabulary
        self.vocab_size = len(vocabulary.pieces)
        self.special_ids = vocabulary.special_ids
        self.eos_ids = vocabulary.eos_ids
        self.bos_id = vocabulary.bos_id
        self.eos_id = vocabulary.eos_id
        self.strips_first_space = vocabulary.strips_first_space

    @property
    def bos_token(self) -> str:
        """The text of the beginning-of-sequence token, as templates write it; empty without one."""
        return "" if self.bos_id is None else self.token_text(self.bos_id)

    @property
    def eos_token(self) -> str:
        """The text of the end-of-sequence token, as templates write it; empty without one."""
        return "" if self.eos_id is None else self.token_text(self.eos_id)

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Token ids of a text. Special tokens written out in it become their ids.

        `add_special_tokens` adds what the model was trained to see around a text, but no second beginning or end
        where the text has one. A rendered chat template passes False: the template alone decides.
        Bytes that the vocabulary has no token for are left out, as the published tokenizers do (SmolLM2's lacks a few
        control characters).
        Raises RequestError for a text that is not valid Unicode.
        """
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except TypeError:
            raise RequestError("the text holds a lone surrogate code point; send valid Unicode") from None
        if not add_special_tokens:
            return ids
        words = self._vocabulary
        if words.add_bos and words.bos_id is not None and ids[:1] != [words.bos_id]:
            ids.insert(0, words.bos_id)
        if words.add_eos and words.eos_id is not None and ids[-1:] != [words.eos_id]:
            ids.append(words.eos_id)
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of a whole sequence; bytes that are not UTF-8 become U+FFFD."""
        kept = [token_id for token_id in ids if not (skip_special and token_id in self.special_ids)]
        text = b"".join(map(self.token_bytes, kept)).decode("utf-8", "replace")
        if self.strips_first_space and text.startswith(" "):
            return text[1:]
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes this id adds in the middle of a text; none for an id that no token has (padded output layers)."""
        assert token_id >= 0, f"token id {token_id} is negative"
        piece = self._pieces[token_id] if token_id < self.vocab_size else None
        if piece is None:
            return b""
        if token_id in self._vocabulary.literal_ids:
            return piece.encode()
        if self._vocabulary.spelling is Spelling.BYTE_LEVEL:
            return byte_level_bytes(piece)
        return marked_space_bytes(piece)

    def piece(self, token_id: int) -> str:
        """The token as the vocabulary spells it, spaces and bytes marked; empty for an id that no token has."""
        return (self._pieces[token_id] if token_id < self.vocab_size else None) or ""

    def special_ids_of(self, texts: Iterable[str]) -> frozenset[int]:
        """The special tokens that are written like one of the texts."""
        ids = map(self._backend.token_to_id, texts)
        return frozenset(token_id for token_id in ids if token_id in self.special_ids)

    def all_token_bytes(self) -> tuple[bytes, ...]:
        """`token_bytes` of every id, by id. Some 50 ms for a vocabulary of 50,000."""
        return tuple(map(self.token_bytes, range(self.vocab_size)))

    def token_text(self, token_id: int) -> str:
        """One token shown alone, special or not, as logprobs list it; U+FFFD where it splits a character."""
        return self.token_bytes(token_id).decode("utf-8", "replace")


def end_ids(pieces: Sequence[str | None], candidates: Iterable[int], named: Collection[int]) -> frozenset[int]:
    """Ids that end a generation: those the checkpoint names, and the candidates whose piece is a known end."""
    known = {token_id for token_id in candidates if pieces[token_id] in END_PIECES}
    return frozenset(known.union(named))


def byte_level_bytes(piece: str) -> bytes:
    """The bytes of a piece in GPT-2's spelling; a piece with foreign characters reads as it is."""
    try:
        return piece.translate(CHARACTER_TO_BYTE).encode("latin-1")
    except UnicodeEncodeError:
        return piece.encode()


def marked_space_bytes(piece: str) -> bytes:
    """The bytes of a SentencePiece piece: `<0xNN>` is one byte, the word mark a space."""
    byte = BYTE_PIECE.fullmatch(piece)
    if byte is not None:
        return bytes([int(byte[1], 16)])
    return piece.replace(WORD_MARK, " ").encode()


def _character_to_byte() -> dict[int, int]:
    """GPT-2's table (Radford et al. 2019, `bytes_to_unicode`): printable Latin-1 as is, the rest from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in printable]
    # Bytes that are shifted must not also stand for themselves: U+1FFFF can't be encoded, so such a piece is foreign.
    foreign = dict.fromkeys(hidden, 0x1FFFF)
    return foreign | {0x100 + index: byte for index, byte in enumerate(hidden)}


CHARACTER_TO_BYTE = _character_to_byte()
