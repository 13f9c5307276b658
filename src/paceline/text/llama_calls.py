"""Tool calls as Llama 3 writes them: an answer that is JSON, `{"name": …, "parameters": {…}}`, or such after a tag.

The tag `<|python_tag|>` may come anywhere. Without it only the start of the text can be a call, and only of a tool
that was offered: an answer may be JSON with a "name" of its own. Further calls follow after white space or `;`.
"""

from collections.abc import Container
from enum import Enum, auto

from paceline.text.answer_events import AnswerEvent, EventLog
from paceline.text.call_reader import CallReader, read_call
from paceline.text.json_scanner import WHITESPACE, Progress
from paceline.text.markers import before_marker

PYTHON_TAG = "<|python_tag|>"
SEPARATORS = WHITESPACE + ";"


class _Place(Enum):
    START = auto()
    TEXT = auto()
    CALL = auto()
    NEXT = auto()


class LlamaCalls:
    """The state of one text; a CallParser."""

    def __init__(self, names: Container[str], max_calls: int | None = None) -> None:
        """`names`: the tools that were offered."""
        self._names = names
        self._log = EventLog(max_calls)
        self._place = _Place.START
        self._text = ""
        self._reader = CallReader()
        self._prefix = ""

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more text."""
        self._text += text
        while self._text and self._advance():
            pass
        return self._log.take()

    def finish(self) -> list[AnswerEvent]:
        """The text has ended."""
        if self._place is _Place.CALL:
            self._give_up_call()
        elif self._place is not _Place.NEXT or self._text.strip(SEPARATORS):
            self._log.content(self._text)
        return self._log.finish()

    def _advance(self) -> bool:
        """Take what is certain; False when more text is needed."""
        if self._place is _Place.CALL:
            return self._read_call()
        if self._place is _Place.TEXT:
            before, self._text, is_found = before_marker(self._text, PYTHON_TAG)
            self._log.content(before)
            if is_found:
                self._begin_call(PYTHON_TAG, None)
            return is_found
        rest = self._text.lstrip(WHITESPACE if self._place is _Place.START else SEPARATORS)
        if PYTHON_TAG.startswith(rest):
            return len(rest) == len(PYTHON_TAG) and self._take_tag(rest)
        if rest.startswith(PYTHON_TAG):
            return self._take_tag(rest)
        if rest.startswith("{"):
            prefix = self._text.removesuffix(rest)
            self._text = rest
            self._begin_call(prefix, self._names)
        else:
            self._place = _Place.TEXT
        return True

    def _take_tag(self, rest: str) -> bool:
        prefix = self._text.removesuffix(rest) + PYTHON_TAG
        self._text = rest.removeprefix(PYTHON_TAG)
        self._begin_call(prefix, None)
        return True

    def _begin_call(self, prefix: str, names: Container[str] | None) -> None:
        self._place = _Place.CALL
        self._prefix = prefix
        self._reader = CallReader(names)

    def _read_call(self) -> bool:
        num_taken, progress = read_call(self._reader, self._text, self._log)
        self._text = self._text[num_taken:]
        if progress is Progress.DONE:
            self._place = _Place.NEXT
        elif progress is Progress.BROKEN:
            self._place = _Place.TEXT
            self._give_up_call()
        return progress is not Progress.MORE

    def _give_up_call(self) -> None:
        if not self._reader.is_started:
            self._log.content(self._prefix + self._reader.raw)
