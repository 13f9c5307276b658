"""A tokenizer from the metadata of a GGUF file.

Two kinds are known: "gpt2", byte-level merges behind a named splitting rule, and "llama", SentencePiece's BPE, whose
merges are not in the file but follow from the scores. Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
Metadata is hostile until checked here: every list has the vocabulary's length, every id lies inside it.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from tokenizers import AddedToken, models, normalizers
from tokenizers import Tokenizer as Backend

from paceline.errors import CheckpointError
from paceline.text.split_rules import BOS_RULES, WHOLE_WORD_RULES, byte_level_splitter
from paceline.text.tokenizer import WORD_MARK, Spelling, Tokenizer, Vocabulary, end_ids

PREFIX = "tokenizer.ggml."
# Deriving merges from scores cuts every piece at every character: both limits bound that work.
MAX_PIECE_CHARS = 512
MAX_VOCABULARY_CHARS = 1 << 23
NAMED_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL_TYPES = frozenset({TokenType.UNKNOWN, TokenType.CONTROL})
LITERAL_TYPES = SPECIAL_TYPES | {TokenType.USER_DEFINED}


def gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer a GGUF file describes. Raises CheckpointError naming the key at fault."""
    return _Builder(metadata).build()


class _Builder:
    """Reads the keys once, checked, and assembles backend and vocabulary."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self.metadata = metadata
        self.model = self.text("model", None)
        self.pieces = self.strings("tokens")
        self.types: list[int] = self.numbers("token_type", [int(TokenType.NORMAL)] * len(self.pieces))
        self.rule = self.text("pre", "default")

    def build(self) -> Tokenizer:
        if self.model == "gpt2":
            backend, spelling, strips = self.byte_level(), Spelling.BYTE_LEVEL, False
        elif self.model == "llama":
            strips = self.flag("add_space_prefix", True)
            backend, spelling = self.sentence_pieces(strips), Spelling.MARKED_SPACES
        else:
            raise CheckpointError(f"tokenizer.ggml.model is {self.model!r}; known are 'gpt2' and 'llama'")
        backend.add_tokens([self.added(token_id) for token_id in self.typed(LITERAL_TYPES)])
        return Tokenizer(backend, self.vocabulary(spelling, strips))

    def byte_level(self) -> Backend:
        """Byte-level BPE from explicit merges, earliest first."""
        merges = [tuple(line.split(" ")) for line in self.strings("merges")]
        whole_words = self.rule in WHOLE_WORD_RULES
        backend = Backend(self.merged(merges, ignore_merges=whole_words))
        backend.pre_tokenizer = byte_level_splitter(self.rule)
        return backend

    def sentence_pieces(self, adds_space: bool) -> Backend:
        """SentencePiece BPE: the merge with the best score first, bytes where no piece fits."""
        scores = self.numbers("scores", None)
        for token_id in self.typed({TokenType.USER_DEFINED}):
            # Matched in the text as written, before spaces are marked.
            self.pieces[token_id] = self.pieces[token_id].replace(WORD_MARK, " ")
        unknown = self.token_id("unknown_token_id")
        mergeable = self.typed({TokenType.NORMAL, TokenType.UNUSED})
        backend = Backend(
            self.merged(
                score_merges([self.pieces[i] for i in mergeable], [scores[i] for i in mergeable]),
                byte_fallback=bool(self.typed({TokenType.BYTE})),
                fuse_unk=True,
                unk_token=None if unknown is None else self.pieces[unknown],
            )
        )
        mark = normalizers.Replace(" ", WORD_MARK)
        # As in the models' published tokenizers, the space also goes before text that follows a special token.
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(WORD_MARK), mark]) if adds_space else mark
        return backend

    def merged(self, merges: Sequence[tuple[str, ...]], **options: Any) -> models.BPE:
        """The library's model; what it refuses in the file becomes ours to report."""
        vocab = {piece: token_id for token_id, piece in enumerate(self.pieces)}
        try:
            return models.BPE(vocab=vocab, merges=merges, **options)  # type: ignore[arg-type]  # pairs are its check
        except Exception as error:
            raise CheckpointError(f"tokenizer.ggml.merges do not fit tokenizer.ggml.tokens: {error}") from None

    def vocabulary(self, spelling: Spelling, strips: bool) -> Vocabulary:
        control = self.typed({TokenType.CONTROL})
        named = [token_id for key in NAMED_ENDS if (token_id := self.token_id(key)) is not None]
        return Vocabulary(
            pieces=tuple(self.pieces),
            spelling=spelling,
            literal_ids=frozenset(self.typed(LITERAL_TYPES)),
            special_ids=frozenset(self.typed(SPECIAL_TYPES)),
            eos_ids=end_ids(self.pieces, control, named),
            bos_id=self.token_id("bos_token_id"),
            eos_id=self.token_id("eos_token_id"),
            add_bos=self.flag("add_bos_token", self.model == "llama" or self.rule in BOS_RULES),
            add_eos=self.flag("add_eos_token", False),
            strips_first_space=strips,
        )

    def added(self, token_id: int) -> AddedToken:
        special = self.types[token_id] in SPECIAL_TYPES
        return AddedToken(self.pieces[token_id], special=special, normalized=False)

    def typed(self, types: set[TokenType] | frozenset[TokenType]) -> list[int]:
        """Ids whose type is one of these and whose piece is not empty."""
        wanted = frozenset(map(int, types))
        return [i for i, kind in enumerate(self.types) if kind in wanted and self.pieces[i]]

    def text(self, key: str, default: str | None) -> str:
        value = self.metadata.get(PREFIX + key, default)
        if not isinstance(value, str):
            raise CheckpointError(
                f"{PREFIX}{key} must be a string, got {type(value).__name__}: the file has no tokenizer"
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self.metadata.get(PREFIX + key, default)
        if not isinstance(value, bool):
            raise CheckpointError(f"{PREFIX}{key} must be a boolean, got {value!r}")
        return value

    def token_id(self, key: str) -> int | None:
        value = self.metadata.get(PREFIX + key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(self.pieces):
            raise CheckpointError(f"{PREFIX}{key} must be an id below {len(self.pieces)}, got {value!r}")
        return value

    def strings(self, key: str) -> list[str]:
        value = self.metadata.get(PREFIX + key)
        if not isinstance(value, Sequence) or isinstance(value, str) or not {str}.issuperset(map(type, value)):
            raise CheckpointError(f"{PREFIX}{key} must be a list of strings")
        lengths = list(map(len, value))
        if max(lengths, default=0) > MAX_PIECE_CHARS or sum(lengths) > MAX_VOCABULARY_CHARS:
            raise CheckpointError(
                f"{PREFIX}{key} has {sum(lengths)} characters, {max(lengths)} in one entry; "
                f"at most {MAX_VOCABULARY_CHARS} and {MAX_PIECE_CHARS} are read"
            )
        return list(value)

    def numbers(self, key: str, default: list[int] | None) -> list[Any]:
        """One number a token, from a list or an array."""
        value = self.metadata.get(PREFIX + key, default)
        found = value.tolist() if hasattr(value, "tolist") else value
        if not isinstance(found, Sequence) or len(found) != len(self.pieces):
            raise CheckpointError(f"{PREFIX}{key} must hold one number for each of {len(self.pieces)} tokens")
        if not {int, float}.issuperset(map(type, found)):
            raise CheckpointError(f"{PREFIX}{key} must hold numbers only")
        return list(found)


def score_merges(pieces: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Every way to make a piece from two pieces, the best-scored piece first.

    SentencePiece merges the adjacent pair whose joined piece has the highest score (Kudo & Richardson 2018); listing
    pairs by that score makes a merge table's ranks choose the same pair.
    """
    known = set(pieces)
    merges: list[tuple[str, str]] = []
    for token_id in sorted(range(len(pieces)), key=lambda i: -scores[i]):
        piece = pieces[token_id]
        splits = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        merges.extend(pair for pair in splits if pair[0] in known and pair[1] in known)
    return merges
