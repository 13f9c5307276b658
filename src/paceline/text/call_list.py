"""Reads a JSON list of tool calls, `[{"name": …, "arguments": …}, …]`, while it is being written."""

from enum import Enum, auto

from paceline.text.answer_events import EventLog
from paceline.text.call_reader import CallReader, read_call
from paceline.text.json_scanner import WHITESPACE, Progress


class _Place(Enum):
    OPEN = auto()
    CALL = auto()
    COMMA = auto()


class CallListReader:
    """The state of one list. After DONE or BROKEN nothing more may be read."""

    def __init__(self, log: EventLog, prefix: str = "") -> None:
        """`prefix` comes back as content, before what was read, when the list holds no call."""
        self._log = log
        self._place = _Place.OPEN
        self._reader = CallReader()
        self._layout = prefix

    def read(self, text: str) -> tuple[int, Progress]:
        """Take characters until the list ends: (how many, MORE, DONE or BROKEN). What was no call became content."""
        num_taken, progress = 0, Progress.MORE
        while num_taken < len(text) and progress is Progress.MORE:
            if self._place is _Place.CALL:
                num_read, read = read_call(self._reader, text[num_taken:], self._log)
                num_taken += num_read
                progress = self._after_call(read)
            else:
                progress = self._between(text[num_taken])
                num_taken += progress is not Progress.BROKEN
        if progress is Progress.BROKEN:
            self.give_up()
        return num_taken, progress

    def give_up(self) -> None:
        """No more will come, or nothing that fits: what belongs to no call becomes content."""
        if not self._reader.is_started:
            self._log.content(self._layout + self._reader.raw)

    def _after_call(self, read: Progress) -> Progress:
        if read is Progress.DONE:
            self._place = _Place.COMMA
            self._layout = ""
            return Progress.MORE
        return read

    def _between(self, char: str) -> Progress:
        if char == "]" and self._place is _Place.COMMA:
            return Progress.DONE
        if char == ("[" if self._place is _Place.OPEN else ","):
            self._place = _Place.CALL
            self._reader = CallReader()
        elif char not in WHITESPACE:
            return Progress.BROKEN
        self._layout += char
        return Progress.MORE
