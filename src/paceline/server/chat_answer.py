"""The answer of /v1/chat/completions, streamed and whole.

Chunks are put together from bytes: the head is encoded once, a delta costs one JSON string. An answer to one choice:
role chunk, content chunks, finish chunk with an empty delta; after the last choice the usage chunk, when asked for.
"""

from collections.abc import Sequence

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
        self._envelope = Envelope.new("chatcmpl", model)
        self._options = options
        self._tokenizer = tokenizer
        self._has_logprobs = options.sampling.num_logprobs is not None
        self._head = self._envelope.chunk_head("chat.completion.chunk")
        self._tail = chunk_tail(options.includes_usage)

    def opening(self, session: Session) -> bytes:
        """The role chunk of every choice."""
        tail = self._tail
        if self._options.returns_token_ids:
            tail = tail_with_prompt_ids(tail, session.prompts[0].token_ids)
        delta = b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return b"".join(
            b'%b{"index":%d,%b%b' % (self._head, index, delta, tail) for index in range(self._options.num_choices)
        )

    def chunk(self, delta: ChoiceDelta) -> bytes:
        """A content chunk when there is something to show, a finish chunk when the choice ended."""
        events = b""
        if delta.text or delta.tokens or delta.token_ids:
            logprobs = encode(chat_logprobs(self._tokenizer, delta.tokens)) if self._has_logprobs else b"null"
            ids = b',"token_ids":%b' % encode(delta.token_ids) if self._options.returns_token_ids else b""
            events = b'%b{"index":%d,"delta":{"content":%b},"logprobs":%b,"finish_reason":null%b}%b' % (
                self._head, delta.index, encode(delta.text), logprobs, ids, self._tail,
            )  # fmt: skip
        if delta.finish_reason is not None:
            events += b'%b{"index":%d,"delta":{},"logprobs":null,"finish_reason":"%b"}%b' % (
                self._head, delta.index, delta.finish_reason.encode(), self._tail,
            )  # fmt: skip
        return events

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk without choices that reports usage."""
        return self._head + tail_with_usage(usage)

    def repeat_usage(self, usage: Usage) -> None:
        """From here on every chunk says so much was used."""
        self._tail = tail_with_usage(usage)

    def whole(self, choices: Sequence[ChoiceTotal], session: Session) -> bytes:
        """The body of a chat.completion."""
        fields = self._envelope.fields("chat.completion")
        fields["choices"] = [
            {
                "index": index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": chat_logprobs(self._tokenizer, choice.tokens) if self._has_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(choices)
        ]
        if self._options.returns_token_ids:
            fields["prompt_token_ids"] = list(session.prompts[0].token_ids)
            for shown, choice in zip(fields["choices"], choices, strict=True):
                shown["token_ids"] = choice.token_ids
        fields["usage"] = usage_fields(session.usage)
        if self._options.num_prompt_logprobs is not None:
            scores = session.prompts[0].scores
            fields["prompt_logprobs"] = prompt_logprobs(self._tokenizer, scores, self._options.num_prompt_logprobs)
        return encode(fields)
