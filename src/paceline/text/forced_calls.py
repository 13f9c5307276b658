"""Tool calls that a grammar forced: the whole text is calls, without any model's markers.

one named function    its arguments alone                  {"city": "Ulm"}
any function          a list of calls                      [{"name": "weather", "arguments": {"city": "Ulm"}}]
"""

from paceline.text.answer_events import AnswerEvent, EventLog
from paceline.text.call_list import CallListReader
from paceline.text.json_scanner import WHITESPACE, Progress


class NamedCall:
    """The text is the arguments of one function; a CallParser."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._log = EventLog()
        self._has_begun = False

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more arguments."""
        if not self._has_begun:
            text = text.lstrip(WHITESPACE)
            if text:
                self._log.call(self._name)
                self._has_begun = True
        self._log.arguments(text)
        return self._log.take()

    def finish(self) -> list[AnswerEvent]:
        """The text has ended."""
        return self._log.finish()


class ForcedList:
    """The text is a list of calls; a CallParser."""

    def __init__(self) -> None:
        self._log = EventLog()
        self._list: CallListReader | None = CallListReader(self._log)

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more of the list."""
        if self._list is not None:
            num_taken, progress = self._list.read(text)
            text = text[num_taken:]
            if progress is not Progress.MORE:
                self._list = None
        self._log.content(text)
        return self._log.take()

    def finish(self) -> list[AnswerEvent]:
        """The text has ended."""
        if self._list is not None:
            self._list.give_up()
        return self._log.finish()
