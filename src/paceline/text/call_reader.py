"""Reads one tool call written as JSON, `{"name": "weather", "arguments": {"city": "Ulm"}}`, while it is being written.

Name and arguments may come in either order, `parameters` means `arguments` (Llama 3), arguments may be an object, that
object's text in a string, null or missing; other keys are ignored. The call *starts* once its name is known and its
arguments have begun: from then on their text is handed out as it comes. What breaks off before that was no call, and
`raw` gives it back.
"""

import json
from collections.abc import Container
from enum import Enum, auto

from paceline.text.answer_events import EventLog
from paceline.text.json_scanner import WHITESPACE, JsonScanner, Progress

ARGUMENT_KEYS = ("arguments", "parameters")
CALL_KEYS = ("name", "type", "id", *ARGUMENT_KEYS)
NO_ARGUMENTS = "{}"


class _Place(Enum):
    OPEN = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    VALUE = auto()
    COMMA = auto()


class CallReader:
    """The state of one call. After DONE or BROKEN nothing more may be pushed."""

    def __init__(self, names: Container[str] | None = None) -> None:
        """`names`: what has another name, or before it a key that calls lack, is no call; None takes everything."""
        self._names = names
        self._place = _Place.OPEN
        self._scanner: JsonScanner | None = None
        self._key: str | None = None
        self._value: list[str] = []
        self._raw: list[str] = []
        self._arguments: list[str] = []
        self._has_arguments = False
        self._streams_value = False
        self._is_announced = False
        self.name: str | None = None

    @property
    def is_started(self) -> bool:
        """Whether this is a call for certain."""
        return self.name is not None and self._has_arguments

    @property
    def raw(self) -> str:
        """What was taken; complete only until the call has started."""
        return "".join(self._raw)

    def read(self, text: str) -> tuple[int, Progress]:
        """Take characters until the call ends: (how many, MORE, DONE, or BROKEN when the rest can't be of a call)."""
        num_taken, progress = 0, Progress.MORE
        while num_taken < len(text) and progress is Progress.MORE:
            if self._scanner is None:
                num_read, progress = self._between(text[num_taken])
            else:
                num_read, progress = self._inside(self._scanner, text, num_taken)
            if not self._is_announced:
                self._raw.append(text[num_taken : num_taken + num_read])
            num_taken += num_read
        return num_taken, progress

    def show(self, log: EventLog) -> None:
        """Tell the log what has become certain since the last time."""
        if self.name is None or not self._has_arguments:
            return
        if not self._is_announced:
            log.call(self.name)
            self._is_announced = True
        log.arguments("".join(self._arguments))
        self._arguments.clear()

    def _between(self, char: str) -> tuple[int, Progress]:
        """A character outside keys and values; the first one of those is left to their scanner."""
        place = self._place
        if char in WHITESPACE:
            return 1, Progress.MORE
        if place is _Place.VALUE or (char == '"' and place in (_Place.FIRST_KEY, _Place.KEY)):
            return 0, self._begin(char)
        if char == "{" and place is _Place.OPEN:
            self._place = _Place.FIRST_KEY
        elif char == ":" and place is _Place.COLON:
            self._place = _Place.VALUE
        elif char == "," and place is _Place.COMMA:
            self._place = _Place.KEY
        elif char == "}" and place in (_Place.FIRST_KEY, _Place.COMMA) and self.name is not None:
            self._end()
            return 1, Progress.DONE
        else:
            return 0, Progress.BROKEN
        return 1, Progress.MORE

    def _begin(self, char: str) -> Progress:
        """A key or value comes, with this first character."""
        if self._place is _Place.VALUE and self._key in ARGUMENT_KEYS and not self._has_arguments:
            if char not in '{"n':
                return Progress.BROKEN
            self._streams_value = self._has_arguments = char == "{"
        self._value.clear()
        self._scanner = JsonScanner()
        return Progress.MORE

    def _inside(self, scanner: JsonScanner, text: str, start: int) -> tuple[int, Progress]:
        """As much of a key or value as there is."""
        num_read, progress = scanner.scan(text, start)
        (self._arguments if self._streams_value else self._value).append(text[start : start + num_read])
        if progress in (Progress.DONE, Progress.PAST):
            self._scanner = None
            progress = Progress.MORE if self._take_item() else Progress.BROKEN
        return num_read, progress

    def _take_item(self) -> bool:
        """A key or value is complete; False when it is none of a call."""
        if self._place in (_Place.FIRST_KEY, _Place.KEY):
            self._key = json.loads("".join(self._value))
            self._place = _Place.COLON
            # JSON that may be an answer is not held back longer than it could be a call.
            return self.is_started or self._names is None or self._key in CALL_KEYS
        self._place = _Place.COMMA
        if self._streams_value:
            self._streams_value = False
            return True
        if self._key == "name" and self.name is None:
            return self._take_name(json.loads("".join(self._value)))
        if self._key in ARGUMENT_KEYS and not self._has_arguments:
            return self._take_arguments(json.loads("".join(self._value)))
        return True

    def _take_name(self, name: object) -> bool:
        if not isinstance(name, str) or not name or not name.isprintable():
            return False
        if self._names is not None and name not in self._names:
            return False
        self.name = name
        return True

    def _take_arguments(self, value: object) -> bool:
        """Arguments as null, or as text in a string, which must be that of an object."""
        text = NO_ARGUMENTS if value is None or value == "" else value
        if not isinstance(text, str) or not is_object(text):
            return False
        self._arguments.append(text)
        self._has_arguments = True
        return True

    def _end(self) -> None:
        if not self._has_arguments:
            self._arguments.append(NO_ARGUMENTS)
            self._has_arguments = True


def is_object(text: str) -> bool:
    """Whether a text is one JSON object."""
    text = text.strip(WHITESPACE)
    return text.startswith("{") and JsonScanner().scan(text, 0) == (len(text), Progress.DONE)


def read_call(reader: CallReader, text: str, log: EventLog) -> tuple[int, Progress]:
    """Take characters until the call ends, and tell the log: (how many, MORE, DONE or BROKEN)."""
    num_taken, progress = reader.read(text)
    reader.show(log)
    return num_taken, progress
