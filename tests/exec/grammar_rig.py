"""Grammars over a tiny vocabulary that can be read in full: single bytes, a few words, two special tokens."""

from collections.abc import Iterable

import numpy as np

from paceline.core.request import Grammar, GrammarKind
from paceline.core.spellings import Spellings
from paceline.exec.constraint import Constraint
from paceline.exec.grammar import GrammarCompiler

END, OTHER_END, START = 0, 1, 2
WORDS = [b"ab", b"abc", b'{"', b'":', b'":"', b"name", b"true", b"false", b" the", b"yes", b"no", b'"yes']
TOKENS = [b"<end>", b"<other end>", b"<start>", *(bytes([byte]) for byte in range(1, 256)), *WORDS]
# Padded, as output layers are; the last ids have no token.
VOCAB_SIZE = len(TOKENS) + 70
ID = {spelling: token_id for token_id, spelling in enumerate(TOKENS) if token_id > START}


def tiny_compiler() -> GrammarCompiler:
    compiler = GrammarCompiler(VOCAB_SIZE)
    compiler.learn_spellings(Spellings(tuple(TOKENS), (END, OTHER_END), (END, OTHER_END, START)))
    return compiler


def lark(text: str) -> Grammar:
    return Grammar(GrammarKind.LARK, text)


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


def schema(text: str) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, text)


def allowed(compiler: GrammarCompiler, constraint: Constraint) -> set[bytes]:
    """Spellings of the tokens that may come next."""
    mask = np.zeros(compiler.num_mask_words, np.uint32)
    assert constraint.fill(mask)
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
    return {TOKENS[token_id] for token_id in np.nonzero(bits)[0].tolist()}


def drain_forced(constraint: Constraint) -> bytes:
    return b"".join(TOKENS[token_id] for token_id in constraint.take_forced(10**6))


def spell(pieces: Iterable[bytes]) -> list[int]:
    return [ID[piece] for piece in pieces]
