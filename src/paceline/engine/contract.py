"""What an engine is to the process around it: a step-driven object that takes requests and gives outputs.

Owns the seam between the engine process and whatever serves inside it: the real engine, or the scripted one of
server tests. Token ids only; no text, no HTTP. Its facts travel to the API
process too, so nothing heavy is imported.
"""

from dataclasses import dataclass
from typing import Protocol

from paceline.core.output import SequenceOutput
from paceline.core.request import Pooling, Request, RequestId


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
class EngineGauges:
    """The engine's state between two steps. Cached blocks are those no running sequence holds; they can be evicted."""

    num_waiting: int
    num_running: int
    num_blocks_in_use: int
    num_blocks_cached: int
    num_blocks_total: int
    num_preemptions: int
    step_index: int


class SteppedEngine(Protocol):
    """One engine, driven by its process: a call to `step` between any two others."""

    @property
    def limits(self) -> EngineLimits:
        """The facts of this engine; they never change."""
        ...

    def submit(self, request: Request) -> None:
        """Queue a request. Raises RequestError when it can never be served, OverloadedError when the queue is full."""
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

    def step(self) -> list[SequenceOutput]:
        """Run one step and return the news; [] when idle."""
        ...

    def gauges(self) -> EngineGauges:
        """The current state, cheap enough for every scrape."""
        ...
