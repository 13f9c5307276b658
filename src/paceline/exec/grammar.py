"""Grammars, compiled: from what a request asked for to a matcher that walks it token by token.

Owns everything that is llguidance's (https://github.com/guidance-ai/llguidance): the tokenizer it needs, its limits,
its errors in our words, and the grammars compiled so far, the least recently used forgotten first. Never decides when
to compile: the engine does so in a thread (the library lets go of the GIL), and only copies are taken inside a step.

JSON is compact: no white space outside strings. So none can run on for ever, and whatever is not the model's choice
(braces, quotes, keys) is forced and costs no step.
"""

import json
from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from paceline.core.request import Grammar, GrammarKind
from paceline.core.spellings import Spellings
from paceline.errors import RequestError
from paceline.exec.byte_pairs import BytePairs

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
    from llguidance._lib import JsonCompileOptions

MAX_COMPILED = 256
MAX_MESSAGE_CHARS = 300
# Applied over what a schema's own "x-guidance" says.
JSON_OPTIONS: "JsonCompileOptions" = {
    "item_separator": ",",
    "key_separator": ":",
    "whitespace_flexible": False,
    "whitespace_pattern": None,
    "coerce_one_of": False,
    "lenient": False,
}


class GrammarCompiler:
    """Compiles grammars for one vocabulary of logits. Thread-safe."""

    def __init__(self, vocab_size: int) -> None:
        self.num_mask_words = (vocab_size + 31) // 32
        self._vocab_size = vocab_size
        self._spellings: Spellings | None = None
        self._tokenizer: LLTokenizer | None = None
        self._building, self._looking = Lock(), Lock()
        self._compiled: OrderedDict[Grammar, LLMatcher | str] = OrderedDict()

    @property
    def is_ready(self) -> bool:
        """Whether the tokens' spellings are known; nothing can be compiled before."""
        return self._spellings is not None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """The tokens that end an output; the first is written where a grammar is complete."""
        assert self._spellings is not None, "a grammar runs before the spellings are known"
        return self._spellings.eos_ids

    def learn_spellings(self, spellings: Spellings) -> None:
        """Take in the vocabulary, cut or filled up to the logits. Costs nothing yet; a second one is ignored."""
        if self._spellings is None:
            size = self._vocab_size
            eos_ids = tuple(token_id for token_id in spellings.eos_ids if token_id < size)
            special_ids = tuple(token_id for token_id in spellings.special_ids if token_id < size)
            padding = (b"",) * (size - len(spellings.token_bytes))
            self._spellings = Spellings(spellings.token_bytes[:size] + padding, eos_ids, special_ids)

    def holds(self, grammar: Grammar) -> bool:
        """Whether `matcher` would answer at once."""
        with self._looking:
            return grammar in self._compiled

    def prepare(self) -> "LLTokenizer | None":
        """Import the library and build its tokenizer, once: about 0.2 s, most of it with the GIL held. None for a model
        without a token that ends a text.
        """
        assert self._spellings is not None, "the tokenizer is built before the spellings are known"
        from llguidance import LLTokenizer

        with self._building:
            if self._tokenizer is None and self._spellings.eos_ids:
                words = cast("TokenizerWrapper", TokenizerWords(self._spellings))
                eos_ids = list(self._spellings.eos_ids)
                self._tokenizer = LLTokenizer(words, n_vocab=self._vocab_size, eos_token=eos_ids)
            return self._tokenizer

    def matcher(self, grammar: Grammar) -> "LLMatcher":
        """A matcher at the grammar's beginning; compiles it if it is not held. Raises RequestError."""
        with self._looking:
            found = self._compiled.get(grammar)
            if found is not None:
                self._compiled.move_to_end(grammar)
        if found is None:
            found = self._compile(grammar)
            with self._looking:
                self._compiled[grammar] = found
                if len(self._compiled) > MAX_COMPILED:
                    self._compiled.popitem(last=False)
        if isinstance(found, str):
            raise RequestError(f"{grammar.param}: {found}", grammar.param)
        return found.deep_copy()

    def _compile(self, grammar: Grammar) -> "LLMatcher | str":
        """The grammar's matcher, or what is wrong with it. A bad one is remembered too."""
        tokenizer = self.prepare()
        if tokenizer is None:
            return "this model's tokenizer names no token that ends a text, which grammars need"
        from llguidance import LLMatcher, LLParserLimits

        try:
            source = _source(grammar)
        except ValueError as error:
            return _in_short(str(error))
        limits = LLParserLimits(verbose_errors=False)
        matcher: LLMatcher = LLMatcher(tokenizer, source, log_level=0, limits=limits)
        if not matcher.is_error():
            # A first look finds a grammar that nothing matches, or that forces text without end.
            first = matcher.deep_copy()
            walk_forced(first)
            fill_mask(first, np.empty(self.num_mask_words, np.uint32))
            return _in_short(first.get_error()) if first.is_error() else matcher
        return _in_short(matcher.get_error())


class TokenizerWords:
    """A vocabulary in the form that LLTokenizer reads; it calls the object to tokenize what a grammar forces."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, spellings: Spellings) -> None:
        self.eos_token_id = spellings.eos_ids[0]
        self.tokens = spellings.token_bytes
        self.special_token_ids = spellings.special_ids
        self._pairs = BytePairs(spellings)

    def __call__(self, text: str | bytes) -> list[int]:
        """Token ids of a forced text."""
        return self._pairs.encode(text if isinstance(text, bytes) else text.encode())


def fill_mask(matcher: "LLMatcher", mask: "np.ndarray[Any, np.dtype[np.uint32]]") -> None:
    """Write which tokens may come next, one bit each, into a contiguous array of words."""
    matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)


def walk_forced(matcher: "LLMatcher") -> list[int]:
    """Walk on while the next token is certain; the tokens walked."""
    walked: list[int] = []
    while tokens := matcher.compute_ff_tokens():
        if not matcher.consume_tokens(tokens):
            break
        walked += tokens
    return walked


def _source(grammar: Grammar) -> str:
    """The grammar in llguidance's own language. Raises ValueError."""
    from llguidance import LLMatcher

    match grammar.kind:
        case GrammarKind.JSON_SCHEMA:
            source: str = LLMatcher.grammar_from_json_schema(grammar.text, overrides=JSON_OPTIONS)
        case GrammarKind.REGEX:
            source = LLMatcher.grammar_from_regex(grammar.text)
        case GrammarKind.LARK:
            source = LLMatcher.grammar_from_lark(grammar.text)
        case GrammarKind.CHOICE:
            choices = [json.dumps(choice) for choice in json.loads(grammar.text)]
            source = LLMatcher.grammar_from_lark(f"start: {' | '.join(choices)}")
    return source


def _in_short(message: str) -> str:
    """The library's complaint on one line."""
    line = " ".join(message.split("\n<")[0].split())
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:MAX_MESSAGE_CHARS]}…"
