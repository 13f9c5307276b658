"""What both answer formats share: the envelope, usage, collecting choices, and turning a session into events or a body.

A format (`ChatAnswer`, `CompletionAnswer`) knows the shape of its route's chunks and body and nothing about engines.
"""

import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.json import encode

from paceline.errors import PacelineError
from paceline.server.choice import ChoiceDelta, ShownToken
from paceline.server.errors import error_body
from paceline.server.session import Session, Usage
from paceline.server.sse import DONE, event


@dataclass(slots=True)
class ChoiceTotal:
    """One whole choice, collected from its deltas."""

    texts: list[str] = field(default_factory=list)
    tokens: list[ShownToken] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(self.texts)


class AnswerFormat(Protocol):
    """The shape of one route's answer. Chunks are whole events, ready to send. `model`: the name it answers for."""

    model: str

    def opening(self, session: Session) -> bytes:
        """What a stream begins with, before any token."""
        ...

    def chunk(self, delta: ChoiceDelta) -> bytes:
        """The events of one delta; empty when it shows nothing."""
        ...

    def usage_chunk(self, usage: Usage) -> bytes:
        """The event that reports usage."""
        ...

    def repeat_usage(self, usage: Usage) -> None:
        """From here on every chunk says so much was used."""
        ...

    def whole(self, choices: Sequence[ChoiceTotal], session: Session) -> bytes:
        """The body of an answer that is not streamed."""
        ...


async def stream_events(session: Session, answer: AnswerFormat, includes_usage: bool) -> AsyncGenerator[bytes, None]:
    """The events of a streamed answer. An error after the start becomes an event."""
    repeats_usage = session.options.repeats_usage
    try:
        await session.wait_for_first()
        if repeats_usage:
            answer.repeat_usage(session.usage)
        yield answer.opening(session)
        async for deltas in session.deltas():
            if repeats_usage:
                answer.repeat_usage(session.usage)
            if data := b"".join(map(answer.chunk, deltas)):
                yield data
        if includes_usage:
            yield answer.usage_chunk(session.usage)
    except PacelineError as error:
        session.count_error(error)
        yield event(error_body(error))
    yield DONE


async def collect(session: Session, num_choices: int) -> list[ChoiceTotal]:
    """Every choice of the session, whole."""
    totals = [ChoiceTotal() for _ in range(num_choices)]
    async for deltas in session.deltas():
        for delta in deltas:
            total = totals[delta.index]
            total.texts.append(delta.text)
            total.tokens.extend(delta.tokens)
            total.token_ids.extend(delta.token_ids)
            total.finish_reason = delta.finish_reason or total.finish_reason
    return totals


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that name an answer."""

    answer_id: str
    created_s: int
    model: str

    @classmethod
    def new(cls, prefix: str, model: str) -> "Envelope":
        """The envelope of a new answer."""
        return cls(f"{prefix}-{secrets.token_hex(16)}", int(time.time()), model)

    def fields(self, kind: str) -> dict[str, Any]:
        """The fields, in OpenAI's order."""
        return {"id": self.answer_id, "object": kind, "created": self.created_s, "model": self.model}

    def chunk_head(self, kind: str) -> bytes:
        """The start of an event up to its choices, encoded once an answer."""
        return b"data: " + encode(self.fields(kind))[:-1] + b',"choices":['


def chunk_tail(includes_usage: bool) -> bytes:
    """The end of an ordinary event, after its choice."""
    return b'],"usage":null}\n\n' if includes_usage else b"]}\n\n"


def tail_with_usage(usage: Mapping[str, Any]) -> bytes:
    """The end of an event that says what was used so far."""
    return b'],"usage":%b}\n\n' % encode(usage)


def tail_with_prompt_ids(tail: bytes, token_ids: Sequence[int]) -> bytes:
    """The end of an event, with the prompt's ids in it."""
    return b'],"prompt_token_ids":%b%b' % (encode(list(token_ids)), tail.removeprefix(b"]"))


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Usage as JSON fields."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
