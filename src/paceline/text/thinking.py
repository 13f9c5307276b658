"""Splits an answer into the thoughts between `<think>` and `</think>` and what follows.

Thoughts come first, if at all. The opening tag may be the prompt's: templates of some models end with it. White space
around thoughts is layout and left out.
"""

from enum import Enum, auto
from math import inf

from paceline.text.markers import before_marker

THINK_TAG = "<think>"
END_TAG = "</think>"


class _Place(Enum):
    START = auto()
    THOUGHTS = auto()
    AFTER = auto()
    CONTENT = auto()


class ThinkSplitter:
    """The state of one text.

    `thought_end`: how many characters of the text were thoughts, tags included; infinite while they go on.
    """

    def __init__(self, starts_thinking: bool) -> None:
        """`starts_thinking`: without a tag at its start the text is thoughts; otherwise it is content."""
        self._starts_thinking = starts_thinking
        self._place = _Place.START
        self._text = ""
        self._num_pushed = 0
        self._has_thoughts = False
        self.thought_end: float = inf

    def push(self, text: str) -> tuple[str, str]:
        """Take more text: (thoughts, content) that are certain now."""
        self._num_pushed += len(text)
        self._text += text
        if self._place is _Place.START:
            self._read_start()
        thoughts = self._take_thoughts() if self._place is _Place.THOUGHTS else ""
        if self._place is _Place.AFTER:
            self._text = self._text.lstrip()
            if self._text:
                self._place = _Place.CONTENT
        return thoughts, self._take() if self._place is _Place.CONTENT else ""

    def finish(self) -> tuple[str, str]:
        """The text has ended: the rest of (thoughts, content)."""
        if self._place is _Place.THOUGHTS or (self._place is _Place.START and self._starts_thinking):
            rest = self._take().rstrip()
            return rest if self._has_thoughts else rest.lstrip(), ""
        if self._place is _Place.START:
            self.thought_end = 0
            return "", self._take()
        return "", ""

    def _read_start(self) -> None:
        begin = self._text.lstrip()
        if begin.startswith(THINK_TAG):
            self._text = begin.removeprefix(THINK_TAG)
            self._place = _Place.THOUGHTS
        elif not THINK_TAG.startswith(begin):
            self._place = _Place.THOUGHTS if self._starts_thinking else _Place.CONTENT
            if self._place is _Place.CONTENT:
                self.thought_end = 0

    def _take_thoughts(self) -> str:
        """Thoughts up to the end tag, or to what may yet be white space before it."""
        thoughts, rest, is_ended = before_marker(self._text, END_TAG)
        if is_ended:
            self._text = rest
            self._place = _Place.AFTER
            self.thought_end = self._num_pushed - len(rest)
            shown = thoughts.rstrip()
        else:
            shown = thoughts.rstrip()
            self._text = thoughts[len(shown) :] + rest
        if not self._has_thoughts:
            shown = shown.lstrip()
            self._has_thoughts = bool(shown)
        return shown

    def _take(self) -> str:
        text, self._text = self._text, ""
        return text
