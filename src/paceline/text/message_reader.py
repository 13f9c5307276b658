"""Reads one chat answer: thoughts first, then content and tool calls, each where the model's format says so."""

from paceline.text.answer_events import AnswerEvent, CallParser, Content, Reasoning
from paceline.text.thinking import ThinkSplitter


class MessageReader:
    """The state of one choice. How its text is cut into pushes never shows in what the events add up to."""

    def __init__(self, thinking: ThinkSplitter | None, calls: CallParser | None) -> None:
        """None: there are no thoughts, or no calls, to look for."""
        self._thinking = thinking
        self._calls = calls

    @property
    def thought_end(self) -> float:
        """How many characters of the text were thoughts; infinite while they go on."""
        return 0 if self._thinking is None else self._thinking.thought_end

    def push(self, text: str) -> list[AnswerEvent]:
        """Take more text; what is certain now and was not before."""
        thoughts, content = ("", text) if self._thinking is None else self._thinking.push(text)
        return self._events(thoughts, content)

    def finish(self) -> list[AnswerEvent]:
        """The text has ended: the rest."""
        events = self._events(*self._thinking.finish()) if self._thinking is not None else []
        return events + self._calls.finish() if self._calls is not None else events

    def _events(self, thoughts: str, content: str) -> list[AnswerEvent]:
        events: list[AnswerEvent] = [Reasoning(thoughts)] if thoughts else []
        if self._calls is not None:
            return events + self._calls.push(content)
        return [*events, Content(content)] if content else events
