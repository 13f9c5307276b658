"""One HTTP request's generation: its prompts go to the engine, its choices come back as text.

Owns the choices and the request ids; whoever opened a session closes it, and closing cancels what has not finished, so
that a client that leaves costs the engine at most the step it is in. Choice `index` counts through prompts first:
prompt p's i-th choice has index p * n + i.
"""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from paceline.core.output import SequenceOutput
from paceline.core.plan import TokenLogprobs
from paceline.core.request import FinishReason, Request, RequestId, StopRule, token_array
from paceline.engine.client import EngineClient
from paceline.engine.stream import OutputStream
from paceline.errors import ContextLengthError, OverloadedError, PacelineError, RequestError
from paceline.observe.requests import FinishedChoice, RequestMetrics
from paceline.server.choice import Choice, ChoiceDelta
from paceline.server.options import Options
from paceline.server.timing import RequestTiming
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one HTTP request: prompts once each, outputs of every choice."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class PromptState:
    """One prompt of the session: its ids, and what the engine has told about it."""

    token_ids: "array[int]"
    scores: list[TokenLogprobs]
    num_cached_tokens: int = 0


class Session:
    """The choices of one HTTP request, from submission to their ends."""

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer,
        options: Options,
        draw_seed: Callable[[], int],
        metrics: RequestMetrics,
    ) -> None:
        self._client = client
        self._tokenizer = tokenizer
        self.options = options
        self._draw_seed = draw_seed
        self._metrics = metrics
        self._has_ended = False
        self._stream = OutputStream()
        self._prompt_index_of: dict[RequestId, int] = {}
        self._choices: list[Choice] = []
        self._next_batch: list[SequenceOutput] = []
        self.prompts: list[PromptState] = []
        self.timing = RequestTiming(arrival_s=time.monotonic())

    def submit(self, prompts: Sequence[Sequence[int]]) -> None:
        """Queue every prompt. Raises ContextLengthError before any is queued, UnavailableError when not ready."""
        requests = [self._request(token_ids) for token_ids in prompts]
        self._client.check_ready()
        self.timing.submitted_s = time.monotonic()
        self._metrics.accept(self.options.num_choices, self.options.ending.max_tokens)
        for request in requests:
            self._prompt_index_of[request.request_id] = len(self.prompts)
            self.prompts.append(PromptState(request.prompt, []))
            self._choices += [
                Choice(self._tokenizer, self.options, len(self._choices) + index)
                for index in range(request.num_sequences)
            ]
            self._client.submit(request, self._stream)

    def most_tokens(self, prompts: Sequence[Sequence[int]]) -> int:
        """The most tokens that these prompts and their choices can come to. Raises ContextLengthError."""
        lengths = [len(token_ids) for token_ids in prompts]
        return sum(length + self.options.num_choices * self._max_tokens(length) for length in lengths)

    async def wait_for_first(self, limit_s: float | None = None) -> None:
        """Wait for the first news, at most `limit_s`; may be called again. Raises what the engine refused with, while a
        status can still be sent.
        """
        if not self._next_batch:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    self._next_batch = await self._stream.take()

    async def deltas(self) -> AsyncIterator[list[ChoiceDelta]]:
        """News of the choices in order of arrival, all that has come since the last turn at once."""
        while batch := self._next_batch or await self._stream.take():
            self._next_batch = []
            now_s = time.monotonic()
            deltas = [self._advance(output, now_s) for output in batch]
            yield [delta for delta in deltas if delta is not None]

    def fail(self, error: PacelineError) -> None:
        """End the session with an error; what has arrived is still delivered."""
        self._cancel()
        self._stream.fail(error)

    def close(self) -> None:
        """Cancel what has not finished: whoever wanted it has left."""
        self._cancel()
        self._end_unfinished(is_our_fault=False)

    def count_error(self, error: PacelineError) -> None:
        """The answer ends with this error: a refusal if the engine took nothing on, else a failure of its choices."""
        self.timing.error_code = error.code
        is_refused_by_engine = isinstance(error, RequestError | OverloadedError) and self.timing.first_token_s is None
        if self.timing.submitted_s is None or is_refused_by_engine:
            self._has_ended = True
            self._metrics.reject(error.code)
        self._end_unfinished(is_our_fault=True)

    @property
    def usage(self) -> Usage:
        """Token counts so far."""
        return Usage(
            prompt_tokens=sum(len(prompt.token_ids) for prompt in self.prompts),
            completion_tokens=sum(choice.num_tokens for choice in self._choices),
            cached_tokens=sum(prompt.num_cached_tokens for prompt in self.prompts),
        )

    def _advance(self, output: SequenceOutput, now_s: float) -> ChoiceDelta | None:
        prompt_index = self._prompt_index_of[output.request_id]
        prompt = self.prompts[prompt_index]
        if output.choice_index == 0:
            prompt.num_cached_tokens = output.num_cached_tokens
            prompt.scores.extend(output.prompt_scores)
        index = prompt_index * self.options.num_choices + output.choice_index
        choice = self._choices[index]
        if choice.is_finished:
            return None
        if output.tokens:
            gap_s = self.timing.record_tokens(index, now_s)
            if gap_s is None:
                self._metrics.time_to_first_token.observe(now_s - self.timing.arrival_s)
            else:
                self._metrics.inter_token_latency.observe(gap_s)
        if output.finish_reason in (FinishReason.ERROR, FinishReason.CANCELLED):
            raise self._broken_off(output.finish_reason)
        delta = choice.push(output)
        if delta.finish_reason is not None:
            self.timing.finish_reasons.append(delta.finish_reason)
            self._metrics.finish(self._finished_choice(index, delta.finish_reason, output, now_s))
        if choice.is_stopped_by_string and output.finish_reason is None:
            self._client.finish(output.request_id, output.choice_index, choice.num_tokens)
        return delta

    def _broken_off(self, reason: FinishReason) -> PacelineError:
        """Why the engine ended a choice before its time. A grammar that gives out is the request's own."""
        grammar = self.options.sampling.grammar
        if reason is FinishReason.ERROR and grammar is not None:
            return RequestError(
                f"{grammar.param}: no token of this model can go on where the grammar leads (a character that the "
                "vocabulary can't spell, or a limit of the grammar's size); change it",
                grammar.param,
            )
        return PacelineError("the engine could not finish this request")

    def _cancel(self) -> None:
        for request_id in self._prompt_index_of:
            self._client.cancel(request_id)

    def _end_unfinished(self, is_our_fault: bool) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._metrics.break_off(sum(not choice.is_finished for choice in self._choices), is_our_fault)

    def _finished_choice(self, index: int, reason: str, output: SequenceOutput, now_s: float) -> FinishedChoice:
        timing = self.timing
        assert timing.submitted_s is not None, "nothing comes back that was not submitted"
        return FinishedChoice(
            reason=reason,
            arrival_s=timing.arrival_s,
            submitted_s=timing.submitted_s,
            admitted_s=output.admitted_s,
            first_token_s=timing.first_token_s_of.get(index),
            end_s=now_s,
            num_prompt_tokens=len(self.prompts[index // self.options.num_choices].token_ids),
            num_cached_tokens=output.num_cached_tokens,
            num_tokens=self._choices[index].num_tokens,
        )

    def _request(self, token_ids: Sequence[int]) -> Request:
        if not token_ids:
            raise RequestError("prompt must hold at least one token", "prompt")
        options = self.options
        ending = options.ending
        # A grammar says itself where its output may end; nothing can follow a complete one.
        runs_on = ending.ignore_eos and options.sampling.grammar is None
        stop_ids = ending.stop_token_ids | (frozenset() if runs_on else self._tokenizer.eos_ids)
        sampling = replace(
            options.sampling,
            seed=self._draw_seed() if options.seed is None else options.seed,
            forbidden_before_min=tuple(sorted(stop_ids)) if options.sampling.min_tokens else (),
        )
        return Request(
            request_id=self._client.draw_request_id(),
            prompt=token_array(token_ids),
            stop=StopRule(self._max_tokens(len(token_ids)), sampling.min_tokens, stop_ids),
            sampling=sampling,
            num_sequences=options.num_choices,
            arrival_s=time.monotonic(),
            priority=options.priority,
            namespace=options.namespace,
        )

    def _max_tokens(self, num_prompt_tokens: int) -> int:
        """The limit asked for, or all that the context leaves. Raises ContextLengthError with the arithmetic."""
        context = self._client.limits.effective_context
        asked = self.options.ending.max_tokens
        if num_prompt_tokens + (1 if asked is None else asked) <= context:
            return context - num_prompt_tokens if asked is None else asked
        wish = "at least 1 new token" if asked is None else f"{asked} new tokens (max_tokens)"
        raise ContextLengthError(
            f"{num_prompt_tokens} prompt tokens and {wish} do not fit the context of {context} tokens; "
            "shorten the prompt or lower max_tokens",
            "max_tokens" if asked is not None and num_prompt_tokens < context else "prompt",
        )
