"""An engine that says what it is told to: for tests of everything around an engine, in a real engine process.

Each sequence emits `script`, over and over, one token a step, choice i starting at its i-th token. Stop tokens,
max_tokens, min_tokens, cancellation and prompt scores work as in a real engine; a pooled request takes a step a prompt
token and gives `pooled_state`; the logprob of a token is a function of
its id. A prompt that starts with a token of `faults` makes the process misbehave as named there. `journal` is a file
that gets a line a step: the number of running sequences, and of those whose cancellation it reports. `requests_log` is
one that gets every request as JSON. With `parrot`, (opening id, closing id, header tokens), each
sequence emits instead, once, what stands in the prompt's last turn but one between header and closing id, and that.
"""

import json
import os
import time
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline.core.output import SequenceOutput
from paceline.core.plan import TokenLogprobs
from paceline.core.request import FinishReason, Pooling, Request, RequestId
from paceline.core.spellings import Spellings
from paceline.engine.contract import EngineCounters, EngineGauges, EngineLimits
from paceline.engine.messages import Submit
from paceline.errors import CheckpointError, ContextLengthError, OverloadedError, PacelineError

BLOCK_SIZE = 16
EMBEDDING_WIDTH = 8


def build(config: Mapping[str, Any]) -> "ScriptedEngine":
    """The factory: `config` may hold load_s, load_error and the fields of ScriptedEngine."""
    options = dict(config)
    time.sleep(options.pop("load_s", 0.0))
    if load_error := options.pop("load_error", None):
        raise CheckpointError(load_error)
    return ScriptedEngine(**options)


def build_from_environment(config: Mapping[str, Any]) -> "ScriptedEngine":
    """The factory for a whole server: its command line has no place for a script."""
    return build(json.loads(os.environ["SCRIPTED_ENGINE"]))


@dataclass
class Running:
    """One sequence on its way."""

    request: Request
    choice_index: int
    script: list[int]
    num_tokens: int = 0
    admitted_s: float = field(default_factory=time.monotonic)


@dataclass
class ScriptedEngine:
    """See the module."""

    script: list[int]
    vocab_size: int = 1000
    step_s: float = 0.0
    context: int = 4096
    max_queued: int = 1024
    faults: dict[str, str] = field(default_factory=dict)
    journal: str | None = None
    requests_log: str | None = None
    parrot: tuple[int, int, int] | None = None
    num_steps: int = 0
    num_prompt_tokens: int = 0
    num_generated_tokens: int = 0
    running: list[Running] = field(default_factory=list)
    cancelled: list[Running] = field(default_factory=list)

    @property
    def limits(self) -> EngineLimits:
        sizes = (self.context, 4 * self.context, BLOCK_SIZE, 64, self.vocab_size)
        return EngineLimits(*sizes, "scripted", 1, 1000.0, EMBEDDING_WIDTH, Pooling.LAST)

    def learn_spellings(self, spellings: Spellings) -> None:
        """Grammars are followed by the real engine only."""

    def take_refusals(self) -> list[tuple[RequestId, PacelineError]]:
        return []

    def idle_timeout_ms(self) -> int | None:
        return None

    def submit(self, request: Request) -> None:
        total = len(request.prompt) + request.stop.max_tokens
        if total > self.context:
            raise ContextLengthError(f"{total} tokens do not fit the context of {self.context}", "messages")
        if len({running.request.request_id for running in self.running}) >= self.max_queued:
            raise OverloadedError(f"{self.max_queued} requests are waiting", 1.0)
        if self.requests_log:
            with open(self.requests_log, "ab") as file:
                file.write(msgspec.json.encode(Submit.of(request)) + b"\n")
        script = self.script if self.parrot is None else parroted(request, *self.parrot)
        self.running += [Running(request, index, script) for index in range(request.num_sequences)]
        self.num_prompt_tokens += request.num_sequences * len(request.prompt)
        fault = self.faults.get(str(request.prompt[0]))
        if fault == "exit":
            os._exit(9)
        if fault == "hang":
            self.step_s = 3600.0
        if fault == "raise":
            raise RuntimeError("the scripted fault")

    def cancel(self, request_id: RequestId) -> None:
        self.cancelled += [running for running in self.running if running.request.request_id == request_id]
        self.running = [running for running in self.running if running.request.request_id != request_id]

    def finish(self, request_id: RequestId, choice_index: int, num_tokens: int) -> None:
        self.running = [r for r in self.running if (r.request.request_id, r.choice_index) != (request_id, choice_index)]

    def has_work(self) -> bool:
        return bool(self.running or self.cancelled)

    def step(self) -> list[SequenceOutput]:
        time.sleep(self.step_s)
        self.num_steps += 1
        if self.journal:
            with open(self.journal, "a") as file:
                file.write(f"{len(self.running)} {len(self.cancelled)}\n")
        outputs = [output(r, (), (), FinishReason.CANCELLED) for r in self.cancelled]
        self.cancelled = []
        outputs += [news for running in self.running if (news := self.advance(running)) is not None]
        ended = {(o.request_id, o.choice_index) for o in outputs if o.finish_reason is not None}
        self.running = [r for r in self.running if (r.request.request_id, r.choice_index) not in ended]
        return outputs

    def advance(self, running: Running) -> SequenceOutput | None:
        request = running.request
        if request.pooling is not None:
            running.num_tokens += 1
            ends = running.num_tokens == len(request.prompt)
            return output(running, (), (), FinishReason.LENGTH)._replace(pooled=pooled_state(request)) if ends else None
        scores = tuple(prompt_scores(request)) if running.num_tokens == 0 else ()
        if request.stop.max_tokens == 0:
            return output(running, (), scores, FinishReason.LENGTH)
        start = running.choice_index if self.parrot is None else 0
        token_id = running.script[(start + running.num_tokens) % len(running.script)]
        running.num_tokens += 1
        self.num_generated_tokens += 1
        ends = token_id in request.stop.stop_token_ids and running.num_tokens > request.stop.min_tokens
        reason = FinishReason.STOP if ends else None
        if reason is None and running.num_tokens == request.stop.max_tokens:
            reason = FinishReason.LENGTH
        return output(running, (scored(token_id, request.sampling.num_logprobs),), scores, reason)

    def gauges(self) -> EngineGauges:
        in_use = sum(-(-(len(r.request.prompt) + r.num_tokens) // BLOCK_SIZE) for r in self.running)
        num_running = len({r.request.request_id for r in self.running})
        counters = EngineCounters(
            num_steps=self.num_steps,
            num_prompt_tokens=self.num_prompt_tokens,
            num_generated_tokens=self.num_generated_tokens,
        )
        return EngineGauges(0, 0, num_running, in_use, 0, self.context // BLOCK_SIZE * 4, counters)


def output(
    running: Running,
    tokens: tuple[TokenLogprobs, ...],
    scores: tuple[TokenLogprobs, ...],
    reason: FinishReason | None,
) -> SequenceOutput:
    num_cached = len(running.request.prompt) // BLOCK_SIZE * BLOCK_SIZE
    request_id, index = running.request.request_id, running.choice_index
    return SequenceOutput(request_id, index, tokens, scores, reason, num_cached, running.admitted_s)


def parroted(request: Request, opening_id: int, closing_id: int, num_header_tokens: int) -> list[int]:
    prompt = list(request.prompt)
    start = [index for index, token_id in enumerate(prompt) if token_id == opening_id][-2] + 1 + num_header_tokens
    return prompt[start : prompt.index(closing_id, start) + 1]


def pooled_state(request: Request) -> bytes:
    """The scripted hidden state: the first and last token, the prompt's length, and zeros."""
    prompt = request.prompt
    return array("f", [prompt[0], prompt[-1], len(prompt), *([0.0] * (EMBEDDING_WIDTH - 3))]).tobytes()


def logprob_of(token_id: int) -> float:
    """The scripted logprob of a token: exact in binary, so that tests compare with ==."""
    return -(token_id % 64 + 1) / 64


def scored(token_id: int, num_logprobs: int | None) -> TokenLogprobs:
    """The token with the ids above it as alternatives, itself first."""
    top = tuple((token_id + rank, logprob_of(token_id) - rank) for rank in range(num_logprobs or 0))
    return TokenLogprobs(token_id, logprob_of(token_id), top)


def prompt_scores(request: Request) -> Iterator[TokenLogprobs]:
    if request.sampling.num_prompt_logprobs is not None:
        for token_id in request.prompt[1:]:
            yield scored(token_id, request.sampling.num_prompt_logprobs)
