"""The answer of /v1/chat/completions, streamed and whole.

Chunks are put together from bytes: the head is encoded once, a delta costs one JSON string. An answer to one choice:
role chunk, content chunks, finish chunk with an empty delta; after the last choice the usage chunk, when asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.json import encode

from paceline.server.answer import (
    ChoiceTotal,
    Envelope,
    chunk_tail,
    tail_with_prompt_ids,
    tail_with_usage,
    usage_fields,
)
from paceline.server.choice import ChoiceDelta
from paceline.server.logprobs import chat_logprobs, prompt_logprobs
from paceline.server.options import Options
from paceline.server.session import Session, Usage
from paceline.text.tokenizer import Tokenizer


class ChatAnswer:
    """One answer's format; an AnswerFormat."""

    def __init__(self, model: str, options: Options, tokenizer: Tokenizer) -> None:
        self.model = model
        self._envelope = Envelope.new("chatcmpl", model)
        self._options = options
        self._tokenizer = tokenizer
        self.has_logprobs = options.sampling.num_logprobs is not None
        self._head = self._envelope.chunk_head("chat.completion.chunk")
        self._tail = chunk_tail(options.includes_usage)

    def opening(self, session: Session) -> bytes:
        """The role chunk of every choice."""
        return self.role_chunks(b'{"role":"assistant","content":""}', session)

    def role_chunks(self, delta: bytes, session: Session) -> bytes:
        """The first event of every choice, with the prompt's ids when asked for."""
        tail = self._tail
        if self._options.returns_token_ids:
            tail = tail_with_prompt_ids(tail, session.prompts[0].token_ids)
        return b"".join(
            b'%b{"index":%d,"delta":%b,"logprobs":null,"finish_reason":null}%b' % (self._head, index, delta, tail)
            for index in range(self._options.num_choices)
        )

    def chunk(self, delta: ChoiceDelta) -> bytes:
        """A content chunk when there is something to show, a finish chunk when the choice ended."""
        events = b""
        if delta.text or delta.tokens or delta.token_ids:
            events = self.delta_chunk(b'{"content":%b}' % encode(delta.text), delta)
        if delta.finish_reason is not None:
            events += self.finish_chunk(delta.index, delta.finish_reason)
        return events

    def delta_chunk(self, shown: bytes, delta: ChoiceDelta) -> bytes:
        """The event that shows something, given as JSON, with the delta's logprobs and ids when asked for."""
        logprobs = encode(chat_logprobs(self._tokenizer, delta.tokens)) if self.has_logprobs else b"null"
        ids = b',"token_ids":%b' % encode(delta.token_ids) if self._options.returns_token_ids else b""
        return b'%b{"index":%d,"delta":%b,"logprobs":%b,"finish_reason":null%b}%b' % (
            self._head, delta.index, shown, logprobs, ids, self._tail,
        )  # fmt: skip

    def finish_chunk(self, index: int, finish_reason: str) -> bytes:
        """The event that ends a choice."""
        return b'%b{"index":%d,"delta":{},"logprobs":null,"finish_reason":"%b"}%b' % (
            self._head, index, finish_reason.encode(), self._tail,
        )  # fmt: skip

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk without choices that reports usage."""
        return self.usage_event(usage_fields(usage))

    def usage_event(self, usage: Mapping[str, Any]) -> bytes:
        """The chunk without choices, of these fields."""
        return self._head + tail_with_usage(usage)

    def repeat_usage(self, usage: Usage) -> None:
        """From here on every chunk says so much was used."""
        self.repeat_fields(usage_fields(usage))

    def repeat_fields(self, usage: Mapping[str, Any]) -> None:
        """From here on every chunk has this usage."""
        self._tail = tail_with_usage(usage)

    def whole(self, choices: Sequence[ChoiceTotal], session: Session) -> bytes:
        """The body of a chat.completion."""
        messages = [{"role": "assistant", "content": choice.text, "refusal": None} for choice in choices]
        return self.body(choices, messages, usage_fields(session.usage), session)

    def body(
        self,
        choices: Sequence[ChoiceTotal],
        messages: Sequence[Mapping[str, Any]],
        usage: Mapping[str, Any],
        session: Session,
    ) -> bytes:
        """The body of a chat.completion with these messages, one a choice."""
        fields = self._envelope.fields("chat.completion")
        fields["choices"] = [
            {
                "index": index,
                "message": message,
                "logprobs": chat_logprobs(self._tokenizer, choice.tokens) if self.has_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, (choice, message) in enumerate(zip(choices, messages, strict=True))
        ]
        if self._options.returns_token_ids:
            fields["prompt_token_ids"] = list(session.prompts[0].token_ids)
            for shown, choice in zip(fields["choices"], choices, strict=True):
                shown["token_ids"] = choice.token_ids
        fields["usage"] = usage
        if self._options.num_prompt_logprobs is not None:
            scores = session.prompts[0].scores
            fields["prompt_logprobs"] = prompt_logprobs(self._tokenizer, scores, self._options.num_prompt_logprobs)
        return encode(fields)
