"""Tool calls as Mistral writes them after `[TOOL_CALLS]`: a list of calls, or one call with its name in front.

    [TOOL_CALLS][{"name": "weather", "arguments": {"city": "Ulm"}}]         up to 2024
    [TOOL_CALLS]weather[CALL_ID]k3j5h2g1f[ARGS]{"city": "Ulm"}              since 2025; [CALL_ID]… and [ARGS] optional

The model's own call ids are not used: the server's have the same form.
"""

import re
from enum import Enum, auto

from paceline.text.answer_events import AnswerEvent, EventLog
from paceline.text.call_list import CallListReader
from paceline.text.json_scanner import JsonScanner, Progress
from paceline.text.markers import before_marker

CALLS_TAG = "[TOOL_CALLS]"
HEAD = re.compile(r"\s*([\w.-]{1,64})(?:\[CALL_ID\][\w-]{1,64})?(?:\[ARGS\])?\s*")
MAX_HEAD_CHARS = 200


class _Place(Enum):
    TEXT = auto()
    HEAD = auto()
    LIST = auto()
    ARGUMENTS = auto()


class MistralCalls:
    """The state of one text; a CallParser."""

    def __init__(self, max_calls: int | None = None) -> None:
        self._log = EventLog(max_calls)
        self._place = _Place.TEXT
        self._text = ""
        self._list = CallListReader(self._log)
        self._scanner = JsonScanner()

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more text."""
        self._text += text
        while self._text and self._advance():
            pass
        return self._log.take()

    def finish(self) -> list[AnswerEvent]:
        """The text has ended."""
        if self._place is _Place.LIST:
            self._list.give_up()
        elif self._place is not _Place.ARGUMENTS:
            self._log.content((CALLS_TAG if self._place is _Place.HEAD else "") + self._text)
        return self._log.finish()

    def _advance(self) -> bool:
        """Take what is certain; False when more text is needed."""
        if self._place is _Place.TEXT:
            before, self._text, is_found = before_marker(self._text, CALLS_TAG)
            self._log.content(before)
            if is_found:
                self._place = _Place.HEAD
            return is_found
        if self._place is _Place.HEAD:
            return self._read_head()
        if self._place is _Place.ARGUMENTS:
            return self._read_arguments()
        num_taken, progress = self._list.read(self._text)
        return self._took(num_taken, progress)

    def _read_head(self) -> bool:
        if self._text.lstrip().startswith("["):
            self._place = _Place.LIST
            self._list = CallListReader(self._log, CALLS_TAG)
            return True
        head, brace, _ = self._text.partition("{")
        match = HEAD.fullmatch(head) if brace and len(head) <= MAX_HEAD_CHARS else None
        if match is not None:
            self._log.call(match[1])
            self._text = self._text[len(head) :]
            self._scanner = JsonScanner()
            self._place = _Place.ARGUMENTS
        elif brace or len(head) > MAX_HEAD_CHARS:
            self._log.content(CALLS_TAG)
            self._place = _Place.TEXT
        return self._place is not _Place.HEAD

    def _read_arguments(self) -> bool:
        num_taken, progress = self._scanner.scan(self._text, 0)
        self._log.arguments(self._text[:num_taken])
        return self._took(num_taken, progress)

    def _took(self, num_taken: int, progress: Progress) -> bool:
        self._text = self._text[num_taken:]
        if progress is not Progress.MORE:
            self._place = _Place.TEXT
        return progress is not Progress.MORE
