"""The answer of /v1/chat/completions when its text holds more than content: thoughts and tool calls.

Wraps the plain answer, which knows the shape of events and bodies, and fills their deltas and messages from what a
`MessageReader` finds. Logprobs and ids are those of every token, whatever it became; they go with the first event of a
delta.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec.json import encode

from paceline.server.answer import ChoiceTotal, usage_fields
from paceline.server.chat_answer import ChatAnswer
from paceline.server.choice import ChoiceDelta, ShownToken
from paceline.server.reading import Reading
from paceline.server.session import Session, Usage
from paceline.text.answer_events import AnswerEvent, CallArguments, CallStart, Content, Reasoning
from paceline.text.message_reader import MessageReader

ROLE = b'{"role":"assistant","content":null}'


@dataclass(slots=True)
class ChoiceReading:
    """One choice on its way. `token_starts`: where in the text each token begins, as far as thoughts may reach."""

    reader: MessageReader
    has_calls: bool = False
    num_chars: int = 0
    token_starts: list[int] = field(default_factory=list)

    def push(self, text: str, tokens: Sequence[ShownToken], is_last: bool) -> list[AnswerEvent]:
        """Take more of the choice."""
        events = self.reader.push(text)
        if is_last:
            events = events + self.reader.finish()
        for token in tokens:
            if self.num_chars < self.reader.thought_end:
                self.token_starts.append(self.num_chars)
            self.num_chars += len(token.text)
        self.has_calls = self.has_calls or any(isinstance(event, CallStart) for event in events)
        return events

    @property
    def num_reasoning_tokens(self) -> int:
        """Tokens of thoughts, their tags included."""
        return bisect_left(self.token_starts, self.reader.thought_end)

    def finish_reason(self, reason: str) -> str:
        """How the choice ended: calls are an end of their own, unless they were cut short."""
        return "tool_calls" if self.has_calls and reason == "stop" else reason


class ToolAnswer:
    """One answer's format; an AnswerFormat."""

    def __init__(self, answer: ChatAnswer, reading: Reading, num_choices: int) -> None:
        self.model = answer.model
        self._answer = answer
        self._reading = reading
        self._choices = [ChoiceReading(reading.new_reader()) for _ in range(num_choices)]

    def opening(self, session: Session) -> bytes:
        """The role chunk of every choice. Its content is null, for there may be calls alone."""
        return self._answer.role_chunks(ROLE, session)

    def chunk(self, delta: ChoiceDelta) -> bytes:
        """An event for each piece of content, thought or call, and one for the end."""
        choice = self._choices[delta.index]
        found = choice.push(delta.text, delta.tokens, delta.finish_reason is not None)
        deltas = [self._delta(event) for event in self._shown(found)]
        if not deltas and (delta.token_ids or (delta.tokens and self._answer.has_logprobs)):
            deltas = [{}]
        told = delta
        events = b""
        for fields in deltas:
            events += self._answer.delta_chunk(encode(fields), told)
            told = replace(delta, tokens=(), token_ids=())
        if delta.finish_reason is not None:
            events += self._answer.finish_chunk(delta.index, choice.finish_reason(delta.finish_reason))
        return events

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk without choices that reports usage."""
        return self._answer.usage_event(self._usage(usage))

    def repeat_usage(self, usage: Usage) -> None:
        """From here on every chunk says so much was used."""
        self._answer.repeat_fields(self._usage(usage))

    def whole(self, choices: Sequence[ChoiceTotal], session: Session) -> bytes:
        """The body of a chat.completion."""
        messages = []
        ended = []
        for total, choice in zip(choices, self._choices, strict=True):
            messages.append(self._message(choice.push(total.text, total.tokens, is_last=True)))
            ended.append(replace(total, finish_reason=choice.finish_reason(str(total.finish_reason))))
        return self._answer.body(ended, messages, self._usage(session.usage), session)

    def _usage(self, usage: Usage) -> dict[str, Any]:
        fields = usage_fields(usage)
        if self._reading.starts_thinking is not None:
            num_tokens = sum(choice.num_reasoning_tokens for choice in self._choices)
            fields["completion_tokens_details"] = {"reasoning_tokens": num_tokens}
        return fields

    def _shown(self, events: Sequence[AnswerEvent]) -> list[AnswerEvent]:
        if self._reading.shows_thoughts:
            return list(events)
        return [event for event in events if not isinstance(event, Reasoning)]

    def _delta(self, event: AnswerEvent) -> dict[str, Any]:
        """The delta of a stream that tells one event."""
        match event:
            case Content(text):
                return {"content": text}
            case Reasoning(text):
                return {"reasoning_content": text}
            case CallStart(index, name):
                return {"tool_calls": [{"index": index, **self._call(name)}]}
            case CallArguments(index, text):
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}

    def _message(self, events: Sequence[AnswerEvent]) -> dict[str, Any]:
        """The whole message that events add up to. Content is null where there are only calls."""
        content, thoughts = "", ""
        calls: list[dict[str, Any]] = []
        for event in self._shown(events):
            match event:
                case Content(text):
                    content += text
                case Reasoning(text):
                    thoughts += text
                case CallStart(_, name):
                    calls.append(self._call(name))
                case CallArguments(_, text):
                    calls[-1]["function"]["arguments"] += text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._reading.starts_thinking is not None:
            message["reasoning_content"] = thoughts or None
        if calls:
            message |= {"content": content or None, "tool_calls": calls}
        return message

    def _call(self, name: str) -> dict[str, Any]:
        function = {"name": name, "arguments": ""}
        return {"id": self._reading.new_call_id(), "type": "function", "function": function}
