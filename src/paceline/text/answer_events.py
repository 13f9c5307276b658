"""What the text of a chat answer turns out to be, piece by piece: content, thoughts, tool calls."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text of the answer itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text the model thought before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The index-th call begins. Its arguments follow; indices count from 0 without gaps."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


AnswerEvent = Content | Reasoning | CallStart | CallArguments


class CallParser(Protocol):
    """Finds tool calls in the text of one choice. How the text is cut into pushes never shows in what it adds up to."""

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more text; what is certain now and was not before."""
        ...

    def finish(self) -> list[AnswerEvent]:
        """The text has ended: the rest. Nothing may be pushed any more."""
        ...


class EventLog:
    """Collects what a call parser finds. White space alone between calls, or around them, is layout and left out.

    `max_calls`: calls beyond are left out (`parallel_tool_calls: false`).
    """

    def __init__(self, max_calls: int | None = None) -> None:
        self._max_calls = max_calls
        self._events: list[AnswerEvent] = []
        self._blank = ""
        self._has_content = False
        self._num_calls = 0

    def content(self, text: str) -> None:
        """Add text that belongs to no call."""
        if not self._has_content:
            text = self._blank + text
            self._has_content = bool(text.strip())
            self._blank = "" if self._has_content else text
        if self._has_content and text:
            last = self._events[-1] if self._events else None
            if isinstance(last, Content):
                self._events[-1] = Content(last.text + text)
            else:
                self._events.append(Content(text))

    def call(self, name: str) -> None:
        """A call begins."""
        self._blank = ""
        self._has_content = False
        self._num_calls += 1
        if self._is_shown():
            self._events.append(CallStart(self._num_calls - 1, name))

    def arguments(self, text: str) -> None:
        """Add to the arguments of the last call."""
        if text and self._is_shown():
            self._events.append(CallArguments(self._num_calls - 1, text))

    def finish(self) -> list[AnswerEvent]:
        """The rest, once the text has ended."""
        if self._blank and not self._num_calls:
            self._events.append(Content(self._blank))
        return self.take()

    def take(self) -> list[AnswerEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def _is_shown(self) -> bool:
        return self._max_calls is None or self._num_calls <= self._max_calls
