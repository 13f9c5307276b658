"""Tool calls as Hermes and Qwen models write them: `<tool_call>{"name": …, "arguments": {…}}</tool_call>` in the text.

A tag without a call behind it is content. Where a call that has started breaks off, its arguments end there and the
rest is content: nothing is lost, and what was sent needs no taking back.
"""

from enum import Enum, auto

from paceline.text.answer_events import AnswerEvent, EventLog
from paceline.text.call_reader import CallReader, read_call
from paceline.text.json_scanner import Progress
from paceline.text.markers import before_marker

CALL_TAG = "<tool_call>"
END_TAG = "</tool_call>"


class _Place(Enum):
    TEXT = auto()
    CALL = auto()
    END = auto()


class HermesCalls:
    """The state of one text; a CallParser."""

    def __init__(self, max_calls: int | None = None) -> None:
        self._log = EventLog(max_calls)
        self._place = _Place.TEXT
        self._text = ""
        self._reader = CallReader()

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more text."""
        self._text += text
        while self._text and self._advance():
            pass
        return self._log.take()

    def finish(self) -> list[AnswerEvent]:
        """The text has ended. Half an end tag is dropped, as a whole one would be."""
        if self._place is _Place.TEXT:
            self._log.content(self._text)
        elif self._place is _Place.CALL and not self._reader.is_started:
            self._log.content(CALL_TAG + self._reader.raw)
        return self._log.finish()

    def _advance(self) -> bool:
        """Take what is certain; False when more text is needed."""
        if self._place is _Place.TEXT:
            before, self._text, is_found = before_marker(self._text, CALL_TAG)
            self._log.content(before)
            if is_found:
                self._place = _Place.CALL
                self._reader = CallReader()
            return is_found
        if self._place is _Place.CALL:
            return self._read_call()
        return self._read_end()

    def _read_call(self) -> bool:
        num_taken, progress = read_call(self._reader, self._text, self._log)
        self._text = self._text[num_taken:]
        if progress is Progress.DONE:
            self._place = _Place.END
        elif progress is Progress.BROKEN:
            self._place = _Place.TEXT
            if not self._reader.is_started:
                self._log.content(CALL_TAG + self._reader.raw)
        return progress is not Progress.MORE

    def _read_end(self) -> bool:
        rest = self._text.lstrip()
        if rest.startswith(END_TAG):
            self._text = rest.removeprefix(END_TAG)
        elif END_TAG.startswith(rest):
            return False
        self._place = _Place.TEXT
        return True
