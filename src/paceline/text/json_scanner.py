"""Reads one JSON value a character at a time and knows after each whether the value goes on, is complete, or broken.

For a value that is shown while it is still being written: what was taken so far is always the beginning of some value.
Strict (RFC 8259): a value that completes is one that `json.loads` takes.
"""

import re
from enum import Enum, auto

WHITESPACE = " \t\n\r"
DIGITS_AND_WORDS = frozenset("0123456789+-.eEtrufalsn")
WORD_STARTS = frozenset("-0123456789tfn")
WORD_BEGINNING = re.compile(
    r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*|(?:\.[0-9]+)?[eE][+-]?[0-9]*)?)?"
    r"|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?"
)
WORD = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
ESCAPE_BEGINNING = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{0,4})')
# Characters that go on a string and change nothing else.
PLAIN = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
CLOSERS = {"{": "}", "[": "]"}
MAX_WORD_CHARS = 400
# Deeper values can't be rendered in the next turn's prompt, and break most parsers.
MAX_JSON_DEPTH = 100


class Progress(Enum):
    """What one character did to a value."""

    MORE = auto()  # taken; the value goes on
    DONE = auto()  # taken; the value is complete
    PAST = auto()  # not taken: the value, a number or a word, was complete before it
    BROKEN = auto()  # not taken: no value goes on like this


class _Expected(Enum):
    VALUE = auto()
    FIRST_VALUE = auto()
    KEY = auto()
    FIRST_KEY = auto()
    COLON = auto()
    COMMA = auto()


class JsonScanner:
    """The state of one value. After DONE, PAST or BROKEN nothing more may be pushed."""

    def __init__(self) -> None:
        self._closers: list[str] = []
        self._expected = _Expected.VALUE
        self._word = ""
        self._escape = ""
        self._is_in_string = False

    def push(self, char: str) -> Progress:
        """Take the next character."""
        if self._is_in_string:
            return self._string(char)
        if self._word:
            if char in DIGITS_AND_WORDS:
                return self._continue_word(char)
            if WORD.fullmatch(self._word) is None:
                return Progress.BROKEN
            self._word = ""
            if self._value_ended() is Progress.DONE:
                return Progress.PAST
        if char in WHITESPACE:
            return Progress.MORE
        return self._structure(char)

    def scan(self, text: str, start: int) -> tuple[int, Progress]:
        """Push characters from `start` on until the value ends: (how many were taken, what the last one did)."""
        position = start
        while position < len(text):
            if self._is_in_string and not self._escape:
                plain = PLAIN.match(text, position)
                position = plain.end() if plain else position
                if position == len(text):
                    break
            progress = self.push(text[position])
            if progress is not Progress.MORE:
                return position - start + (progress is Progress.DONE), progress
            position += 1
        return position - start, Progress.MORE

    def _string(self, char: str) -> Progress:
        if self._escape:
            self._escape += char
            if ESCAPE_BEGINNING.fullmatch(self._escape) is None:
                return Progress.BROKEN
            if self._escape[1] != "u" or len(self._escape) == len("\\u0000"):
                self._escape = ""
        elif char == "\\":
            self._escape = char
        elif char == '"':
            self._is_in_string = False
            if self._expected in (_Expected.KEY, _Expected.FIRST_KEY):
                self._expected = _Expected.COLON
            else:
                return self._value_ended()
        elif char < " " or "\ud800" <= char <= "\udfff":
            return Progress.BROKEN
        return Progress.MORE

    def _continue_word(self, char: str) -> Progress:
        self._word += char
        if len(self._word) > MAX_WORD_CHARS or WORD_BEGINNING.fullmatch(self._word) is None:
            return Progress.BROKEN
        return Progress.MORE

    def _structure(self, char: str) -> Progress:
        expected = self._expected
        is_value = expected in (_Expected.VALUE, _Expected.FIRST_VALUE)
        if char == '"' and (is_value or expected in (_Expected.KEY, _Expected.FIRST_KEY)):
            self._is_in_string = True
        elif is_value and char in WORD_STARTS:
            self._word = char
        elif is_value and char in CLOSERS and len(self._closers) < MAX_JSON_DEPTH:
            self._closers.append(CLOSERS[char])
            self._expected = _Expected.FIRST_KEY if char == "{" else _Expected.FIRST_VALUE
        elif char == ":" and expected is _Expected.COLON:
            self._expected = _Expected.VALUE
        elif char == "," and expected is _Expected.COMMA:
            self._expected = _Expected.KEY if self._closers[-1] == "}" else _Expected.VALUE
        elif char in "}]" and self._may_close(char):
            self._closers.pop()
            return self._value_ended()
        else:
            return Progress.BROKEN
        return Progress.MORE

    def _may_close(self, char: str) -> bool:
        if not self._closers or self._closers[-1] != char:
            return False
        return self._expected in (_Expected.COMMA, _Expected.FIRST_KEY, _Expected.FIRST_VALUE)

    def _value_ended(self) -> Progress:
        self._expected = _Expected.COMMA
        return Progress.MORE if self._closers else Progress.DONE
