"""The answer of /v1/completions, streamed and whole, with the prompt in front when `echo` asks for it."""

from collections.abc import Sequence
from typing import Any

from msgspec.json import encode

from paceline.server.answer import ChoiceTotal, Envelope, chunk_tail, tail_with_usage, usage_fields
from paceline.server.choice import ChoiceDelta, ShownToken
from paceline.server.logprobs import CompletionLogprobs, prompt_logprobs
from paceline.server.prompts import EncodedPrompt
from paceline.server.protocol import CompletionRequest
from paceline.server.session import Session, Usage
from paceline.text.choice import prompt_texts
from paceline.text.tokenizer import Tokenizer


class CompletionAnswer:
    """One answer's format; an AnswerFormat."""

    def __init__(
        self, model: str, request: CompletionRequest, prompts: Sequence[EncodedPrompt], tokenizer: Tokenizer
    ) -> None:
        self.model = model
        self._envelope = Envelope.new("cmpl", model)
        self._options = request.options
        self._echo = request.echo
        self._prompts = prompts
        self._tokenizer = tokenizer
        self._head = self._envelope.chunk_head("text_completion")
        self._tail = chunk_tail(self._options.includes_usage)
        num_choices = len(prompts) * self._options.num_choices
        self._logprobs = [
            CompletionLogprobs(tokenizer, self._options.sampling.num_logprobs or 0) for _ in range(num_choices)
        ]

    def opening(self, session: Session) -> bytes:
        """The prompts, one chunk a choice, when echoed or their ids are asked for."""
        if not (self._echo or self._options.returns_token_ids):
            return b""
        return b"".join(self._opening(index, session) for index in range(len(self._logprobs)))

    def _opening(self, index: int, session: Session) -> bytes:
        text = self._add_prompt(index, session).text if self._echo else ""
        ids = b""
        if self._options.returns_token_ids:
            ids = b',"prompt_token_ids":%b,"token_ids":[]' % encode(self._prompt_ids(index, session))
        return self._chunk(ChoiceDelta(index, text, (), None), self._taken_logprobs(index), ids)

    def chunk(self, delta: ChoiceDelta) -> bytes:
        """One chunk for text, logprobs and end together."""
        if not (delta.text or delta.tokens or delta.token_ids or delta.finish_reason):
            return b""
        self._add_tokens(delta.index, delta.tokens)
        ids = b',"token_ids":%b' % encode(delta.token_ids) if self._options.returns_token_ids else b""
        return self._chunk(delta, self._taken_logprobs(delta.index), ids)

    def usage_chunk(self, usage: Usage) -> bytes:
        """The chunk without choices that reports usage."""
        return self._head + tail_with_usage(usage_fields(usage))

    def repeat_usage(self, usage: Usage) -> None:
        """From here on every chunk says so much was used."""
        self._tail = tail_with_usage(usage_fields(usage))

    def whole(self, choices: Sequence[ChoiceTotal], session: Session) -> bytes:
        """The body of a text_completion."""
        fields = self._envelope.fields("text_completion")
        fields["choices"] = [self._whole_choice(index, choice, session) for index, choice in enumerate(choices)]
        fields["usage"] = usage_fields(session.usage)
        return encode(fields)

    def _whole_choice(self, index: int, choice: ChoiceTotal, session: Session) -> dict[str, Any]:
        text = choice.text
        if self._echo:
            text = self._add_prompt(index, session).text + text
        self._add_tokens(index, choice.tokens)
        fields = {
            "index": index,
            "text": text,
            "logprobs": self._taken_logprobs(index),
            "finish_reason": choice.finish_reason,
        }
        if self._options.returns_token_ids:
            fields["prompt_token_ids"] = self._prompt_ids(index, session)
            fields["token_ids"] = choice.token_ids
        if self._options.num_prompt_logprobs is not None:
            scores = session.prompts[index // self._options.num_choices].scores
            fields["prompt_logprobs"] = prompt_logprobs(self._tokenizer, scores, self._options.num_prompt_logprobs)
        return fields

    def _add_prompt(self, index: int, session: Session) -> EncodedPrompt:
        """Put the prompt's tokens before the choice's."""
        prompt_index = index // self._options.num_choices
        prompt = self._prompts[prompt_index]
        if self._options.sampling.num_logprobs is not None:
            scores = session.prompts[prompt_index].scores
            texts = prompt_texts(self._tokenizer, prompt.token_ids, prompt.has_added_bos)
            for token, scored in zip(texts, [None, *scores], strict=True):
                self._logprobs[index].add(token.text, scored)
        return prompt

    def _prompt_ids(self, index: int, session: Session) -> list[int]:
        return list(session.prompts[index // self._options.num_choices].token_ids)

    def _add_tokens(self, index: int, tokens: Sequence[ShownToken]) -> None:
        for shown in tokens:
            self._logprobs[index].add(shown.text, shown.scored)

    def _taken_logprobs(self, index: int) -> dict[str, Any] | None:
        return None if self._options.sampling.num_logprobs is None else self._logprobs[index].take()

    def _chunk(self, delta: ChoiceDelta, logprobs: dict[str, Any] | None, ids: bytes) -> bytes:
        return b'%b{"index":%d,"text":%b,"logprobs":%b,"finish_reason":%b%b}%b' % (
            self._head, delta.index, encode(delta.text), encode(logprobs), encode(delta.finish_reason), ids, self._tail,
        )  # fmt: skip
