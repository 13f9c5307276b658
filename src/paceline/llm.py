"""Generation and embeddings in process: a model, its tokenizer and an engine behind three calls. For scripts,
notebooks and tests.

from paceline import LLM, GenerationOptions
llm = LLM("smollm2-135m")
[answer] = llm.chat([[{"role": "user", "content": "Name three cheeses."}]], GenerationOptions(max_tokens=64))
print(answer.choices[0].text)
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from paceline.config import EngineConfig
from paceline.core.output import SequenceOutput
from paceline.core.plan import TokenLogprobs
from paceline.core.request import FinishReason, Grammar, Request, RequestId, SamplingParams, StopRule, token_array
from paceline.engine.loading import load_engine
from paceline.errors import ContextLengthError, RequestError
from paceline.server.checks import check_range
from paceline.server.embedding_vector import VectorForm
from paceline.server.model_text import spellings_of
from paceline.text.choice import ChoiceText
from paceline.text.model_text import load_model_text
from paceline.text.stops import StopStrings


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How to continue a prompt. `sampling.seed` is used only when `is_seeded`; otherwise each request draws one.

    max_tokens None: as much as the effective context leaves. With `sampling.grammar` the output matches it, and
    `ignore_eos` changes nothing: the end is where the grammar allows it.
    """

    max_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    is_seeded: bool = False
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    num_choices: int = 1


@dataclass(frozen=True, slots=True)
class GeneratedChoice:
    """One continuation. `tokens` are those counted, a stop token included; `text` is without it."""

    text: str
    tokens: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Generation:
    """The answer to one prompt."""

    prompt: tuple[int, ...]
    choices: tuple[GeneratedChoice, ...]
    prompt_scores: tuple[TokenLogprobs, ...]
    num_cached_tokens: int


class LLM:
    """A loaded model. Not thread-safe."""

    def __init__(self, model: str | EngineConfig = "smollm2-135m") -> None:
        """Load by name, path or full configuration. Raises CheckpointError or ConfigError."""
        config = model if isinstance(model, EngineConfig) else EngineConfig(model=model)
        self.engine = load_engine(config)
        self.text = load_model_text(config.model, config.revision)
        self._num_requests = 0
        self._knows_spellings = False

    def generate(
        self, prompts: Sequence[str | Sequence[int]], options: GenerationOptions = GenerationOptions()
    ) -> list[Generation]:
        """Continue each prompt (text, or token ids), all in one batch; answers in the order of the prompts.

        Raises RequestError for the first prompt, or the grammar, that can't be served; none has run then.
        """
        return self._run(self._encode(prompts), options)

    def chat(
        self,
        conversations: Sequence[Sequence[Mapping[str, object]]],
        options: GenerationOptions = GenerationOptions(),
    ) -> list[Generation]:
        """Answer each conversation, rendered by the model's own template. Raises RequestError likewise."""
        rendered = [self.text.template.render(messages) for messages in conversations]
        return self._run([self.text.tokenizer.encode(text, add_special_tokens=False) for text in rendered], options)

    def embed(
        self, prompts: Sequence[str | Sequence[int]], dimensions: int | None = None, normalize: bool = True
    ) -> list[NDArray[np.float32]]:
        """The embedding of each prompt: its pooled hidden states (`EngineConfig.pooling_type`), float32 [D].

        `dimensions` keeps the first values only; `normalize` scales what is kept to length one. Raises RequestError
        for the first prompt that can't be served; none has run then.
        """
        limits, form = self.engine.limits, VectorForm(dimensions, normalize)
        if dimensions is not None:
            check_range(dimensions, 1, limits.embedding_width, "dimensions")
        requests = [self._pooled_request(prompt) for prompt in self._encode(prompts)]
        pooled: dict[RequestId, bytes] = {}
        for start in range(0, len(requests), limits.max_num_seqs):
            pooled |= self._pool(requests[start : start + limits.max_num_seqs])
        return [np.frombuffer(form.apply(pooled[request.request_id]), np.float32) for request in requests]

    def _encode(self, prompts: Sequence[str | Sequence[int]]) -> list[list[int]]:
        encode = self.text.tokenizer.encode
        return [
            encode(prompt, add_special_tokens=True) if isinstance(prompt, str) else list(prompt) for prompt in prompts
        ]

    def _pool(self, requests: Sequence[Request]) -> dict[RequestId, bytes]:
        """The pooled states of a few requests, computed in one batch."""
        pooled: dict[RequestId, bytes] = {}
        try:
            for request in requests:
                self.engine.submit(request)
            while len(pooled) < len(requests):
                for output in self.engine.step():
                    assert output.pooled is not None, "a pooled request gives one output"
                    pooled[output.request_id] = output.pooled
        except BaseException:
            self._drop(requests)
            raise
        return pooled

    def _drop(self, requests: Sequence[Request]) -> None:
        """Leave nothing of the requests in the engine."""
        for request in requests:
            self.engine.cancel(request.request_id)
        self.engine.step()

    def _pooled_request(self, prompt: list[int]) -> Request:
        limits = self.engine.limits
        if not prompt:
            raise RequestError("the prompt is empty; give at least one token", "prompt")
        if len(prompt) > limits.effective_context:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, the context holds {limits.effective_context}; shorten it",
                "prompt",
            )
        self._num_requests += 1
        number = self._num_requests
        return Request(
            RequestId(number), token_array(prompt), StopRule(0), arrival_s=float(number), pooling=limits.pooling
        )

    def _run(self, prompts: list[list[int]], options: GenerationOptions) -> list[Generation]:
        if options.sampling.grammar is not None:
            self._compile(options.sampling.grammar)
        requests = [self._request(prompt, options) for prompt in prompts]
        pending = {request.request_id: _Pending(self, request, options) for request in requests}
        try:
            for request in requests:
                self.engine.submit(request)
            while any(not generation.is_finished for generation in pending.values()):
                for output in self.engine.step():
                    pending[output.request_id].take(output)
        except BaseException:
            self._drop(requests)
            raise
        return [pending[request.request_id].result() for request in requests]

    def _compile(self, grammar: Grammar) -> None:
        if not self._knows_spellings:
            self.engine.learn_spellings(spellings_of(self.text.tokenizer))
            self._knows_spellings = True
        self.engine.compile_grammar(grammar)

    def _request(self, prompt: list[int], options: GenerationOptions) -> Request:
        if not prompt:
            raise RequestError("the prompt is empty; give at least one token", "prompt")
        sampling = options.sampling if options.is_seeded else replace(options.sampling, seed=secrets.randbits(64))
        runs_on = options.ignore_eos and sampling.grammar is None
        stop_ids = frozenset() if runs_on else self.text.tokenizer.eos_ids
        room = self.engine.limits.effective_context - len(prompt)
        stop = StopRule(room if options.max_tokens is None else options.max_tokens, sampling.min_tokens, stop_ids)
        sampling = replace(sampling, forbidden_before_min=tuple(sorted(stop_ids)))
        self._num_requests += 1
        return Request(
            RequestId(self._num_requests),
            token_array(prompt),
            stop,
            sampling,
            options.num_choices,
            float(self._num_requests),
        )


class _Pending:
    """One request's answer while it grows."""

    def __init__(self, llm: LLM, request: Request, options: GenerationOptions) -> None:
        stops = StopStrings(options.stop, options.include_stop)
        self._llm = llm
        self._request = request
        self._texts = [ChoiceText(llm.text.tokenizer, stops) for _ in range(request.num_sequences)]
        self._shown = [""] * request.num_sequences
        self._tokens: list[list[TokenLogprobs]] = [[] for _ in range(request.num_sequences)]
        self._reasons: list[FinishReason | None] = [None] * request.num_sequences
        self._prompt_scores: list[TokenLogprobs] = []
        self._num_cached_tokens = 0

    @property
    def is_finished(self) -> bool:
        return all(reason is not None for reason in self._reasons)

    def take(self, output: SequenceOutput) -> None:
        index, text = output.choice_index, self._texts[output.choice_index]
        if self._reasons[index] is not None:
            return
        self._num_cached_tokens = output.num_cached_tokens
        if index == 0:
            self._prompt_scores += output.prompt_scores
        for token in output.tokens:
            ends_here = output.finish_reason is FinishReason.STOP and token is output.tokens[-1]
            piece = text.push(token.token_id, is_shown=not ends_here)
            self._shown[index] += piece.text
            self._tokens[index].append(token)
            if piece.stop is not None:
                self._end_by_string(index, text.num_tokens)
                return
        if output.finish_reason is not None:
            last = text.finish()
            self._shown[index] += last.text
            self._reasons[index] = FinishReason.STOP if last.stop is not None else output.finish_reason
            del self._tokens[index][text.num_tokens :]

    def _end_by_string(self, index: int, num_tokens: int) -> None:
        self._reasons[index] = FinishReason.STOP
        del self._tokens[index][num_tokens:]
        self._llm.engine.finish(self._request.request_id, index, num_tokens)

    def result(self) -> Generation:
        choices = []
        for text, tokens, reason in zip(self._shown, self._tokens, self._reasons, strict=True):
            assert reason is not None
            choices.append(GeneratedChoice(text, tuple(tokens), reason))
        scores = tuple(self._prompt_scores)
        return Generation(tuple(self._request.prompt), tuple(choices), scores, self._num_cached_tokens)
