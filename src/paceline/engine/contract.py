"""What an engine is to the process around it: a step-driven object that takes requests and gives outputs.

Owns the seam between the engine process and whatever serves inside it: the real engine, or the scripted one of
server tests. Token ids only; no text, no HTTP. Its facts travel to the API
process too, so nothing heavy is imported.
"""

from dataclasses import dataclass, field
from typing import Protocol

from paceline.core.histogram import STEP_TOKENS_BOUNDS, Histogram, HistogramState
from paceline.core.output import SequenceOutput
from paceline.core.request import Pooling, Request, RequestId
from paceline.core.spellings import Spellings
from paceline.errors import PacelineError


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Facts fixed when the engine has loaded: what a request may ask for, and what the start-up summary prints.

    `expected_tokens_per_s`: decode speed of one stream, measured by the warm-up; None when it was not measured.
    `embedding_width` and `pooling`: what embeddings are made of here.
    """

    effective_context: int
    pool_tokens: int
    block_size: int
    max_num_seqs: int
    vocab_size: int
    instruction_set: str
    num_threads: int
    expected_tokens_per_s: float | None = None
    embedding_width: int = 0
    pooling: Pooling = Pooling.MEAN


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """What an engine has counted since it loaded; nothing here ever falls. A prompt of n choices counts n times.

    Prompt, queried and cached tokens are counted once, when a sequence is first admitted: `num_queried_tokens` were
    looked up in the prefix cache and `num_cached_tokens` found there. `num_recomputed_tokens` were computed before a
    preemption and again after it; they are in none of the others. `num_generated_tokens` were sampled, whoever still
    wanted them.
    """

    num_steps: int = 0
    num_preemptions: int = 0
    num_prompt_tokens: int = 0
    num_queried_tokens: int = 0
    num_cached_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_generated_tokens: int = 0
    num_evicted_blocks: int = 0
    step_tokens: HistogramState = field(default_factory=lambda: Histogram(STEP_TOKENS_BOUNDS).state())

    def plus(self, other: "EngineCounters") -> "EngineCounters":
        """Both together: what an engine and the one before it have counted."""
        return EngineCounters(
            num_steps=self.num_steps + other.num_steps,
            num_preemptions=self.num_preemptions + other.num_preemptions,
            num_prompt_tokens=self.num_prompt_tokens + other.num_prompt_tokens,
            num_queried_tokens=self.num_queried_tokens + other.num_queried_tokens,
            num_cached_tokens=self.num_cached_tokens + other.num_cached_tokens,
            num_recomputed_tokens=self.num_recomputed_tokens + other.num_recomputed_tokens,
            num_generated_tokens=self.num_generated_tokens + other.num_generated_tokens,
            num_evicted_blocks=self.num_evicted_blocks + other.num_evicted_blocks,
            step_tokens=self.step_tokens.plus(other.step_tokens),
        )


@dataclass(frozen=True, slots=True)
class EngineGauges:
    """The engine's state between two steps, counted in sequences (choices) and blocks.

    `num_following` of the waiting ones wait for a prefix that another sequence is computing, `num_compiling` for their
    grammar. Cached blocks are those no running sequence holds; they can be evicted.
    """

    num_waiting: int
    num_following: int
    num_running: int
    num_blocks_in_use: int
    num_blocks_cached: int
    num_blocks_total: int
    counters: EngineCounters
    num_compiling: int = 0

    @property
    def num_preemptions(self) -> int:
        """Preemptions so far."""
        return self.counters.num_preemptions

    @property
    def step_index(self) -> int:
        """Steps so far."""
        return self.counters.num_steps


class SteppedEngine(Protocol):
    """One engine, driven by its process: a call to `step` between any two others."""

    @property
    def limits(self) -> EngineLimits:
        """The facts of this engine; they never change."""
        ...

    def learn_spellings(self, spellings: Spellings) -> None:
        """How the model's tokens are spelled, which grammars need to know."""
        ...

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestError when it can never be served, OverloadedError when the queue is full."""
        ...

    def take_refusals(self) -> list[tuple[RequestId, PacelineError]]:
        """Requests found impossible to serve after they were queued, each once; they give no outputs."""
        ...

    def cancel(self, request_id: RequestId) -> None:
        """End every sequence of the request; each gives a last output with CANCELLED. Unknown ids are ignored."""
        ...

    def finish(self, request_id: RequestId, choice_index: int, num_tokens: int) -> None:
        """A stop string ended a sequence: drop what it sampled past `num_tokens`. Ignored once it has finished."""
        ...

    def has_work(self) -> bool:
        """Whether `step` would compute or report something."""
        ...

    def idle_timeout_ms(self) -> int | None:
        """How long there may be no work without a new command, at most; None for ever."""
        ...

    def step(self) -> list[SequenceOutput]:
        """Run one step and return the news; [] when idle."""
        ...

    def gauges(self) -> EngineGauges:
        """The current state, cheap enough for every scrape."""
        ...
