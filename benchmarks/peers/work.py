"""The work every engine is given, and what is read off the times its tokens came at. Standard library only: this file
is imported in each peer's own environment.

A work is some streams of random token ids, greedy, to a fixed number of outputs whatever the model says. All engines
get the same prompts in the same round; no two prompts share a prefix.
"""

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

FIRST_TOKEN_ID, END_TOKEN_ID = 300, 48_900  # Ordinary words of the vocabulary, no control tokens.
LONG_PROMPT, LONG_OUTPUT = 4_000, 8
INJECT_AFTER = 64  # Tokens of the first stream, when the long prompt comes.
WARM_UP_PROMPT, WARM_UP_STREAM_PROMPT, WARM_UP_OUTPUT = 256, 16, 4

Figures = dict[str, float]


@dataclass(frozen=True)
class Measure:
    """A figure that engines are compared by."""

    name: str
    title: str
    is_better_when_lower: bool = False


DECODE = Measure("decode_tokens_per_s", "decode, tokens/s")
PREFILL = Measure("prefill_tokens_per_s", "prefill, tokens/s")
WORST_GAP = Measure("worst_gap_ms", "worst gap of the 8 streams, ms", is_better_when_lower=True)
LONG_TTFT = Measure("long_ttft_s", "TTFT of the long prompt, s", is_better_when_lower=True)


@dataclass(frozen=True)
class Work:
    """`num_streams` prompts at once; `has_long_prompt`: one of 4,000 tokens comes while they run."""

    name: str
    num_streams: int
    prompt: int
    output: int
    measures: tuple[Measure, ...]
    has_long_prompt: bool = False

    @property
    def is_prefill(self) -> bool:
        return self.output == 1


WORKS = {
    work.name: work
    for work in (
        Work("decode-1", 1, 128, 128, (DECODE,)),
        Work("decode-8", 8, 128, 128, (DECODE,)),
        Work("decode-32", 32, 128, 128, (DECODE,)),
        Work("decode-64", 64, 128, 128, (DECODE,)),
        Work("prefill-512", 1, 512, 1, (PREFILL,)),
        Work("prefill-8x512", 8, 512, 1, (PREFILL,)),
        Work("prefill-2048", 1, 2048, 1, (PREFILL,)),
        Work("hol", 8, 128, 200, (WORST_GAP, LONG_TTFT), has_long_prompt=True),
    )
}


@dataclass
class Stream:
    """One request and when its tokens came. `is_injected`: it waits for the first stream's `INJECT_AFTER` tokens."""

    prompt: list[int]
    num_outputs: int
    is_injected: bool = False
    submitted_s: float = 0.0
    token_times_s: list[float] = field(default_factory=list)

    @property
    def gaps(self) -> list[tuple[float, float]]:
        """(when it ended, seconds) of every gap between two tokens."""
        return [(end_s, end_s - begin_s) for begin_s, end_s in pairwise(self.token_times_s)]


class Engine(Protocol):
    """An engine in this process, driven step by step."""

    def submit(self, prompt: list[int], num_outputs: int) -> int:
        """Queue a request; its key."""

    def step(self) -> Sequence[tuple[int, int]]:
        """Compute; (key, how many new tokens) of every request that got some."""


def streams_of(work: Work, seed: str) -> list[Stream]:
    """The requests of one measurement: the same for every engine."""
    rng = random.Random(f"{work.name}/{seed}")
    streams = [Stream(_prompt(rng, work.prompt), work.output) for _ in range(work.num_streams)]
    if work.has_long_prompt:
        streams.append(Stream(_prompt(rng, LONG_PROMPT), LONG_OUTPUT, is_injected=True))
    return streams


def warm_up_streams(work: Work, seed: str) -> list[Stream]:
    """What runs before the clock does: a prefill in full, since engines prepare for its shape; short streams else."""
    if work.is_prefill:
        return streams_of(work, f"warm-up {seed}")
    rng = random.Random(f"warm-up {work.name}/{seed}")
    short = [Stream(_prompt(rng, WARM_UP_STREAM_PROMPT), WARM_UP_OUTPUT) for _ in range(work.num_streams)]
    return [Stream(_prompt(rng, WARM_UP_PROMPT), WARM_UP_OUTPUT), *short]


def _prompt(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(FIRST_TOKEN_ID, END_TOKEN_ID) for _ in range(num_tokens)]


def serve(engine: Engine, streams: Sequence[Stream]) -> None:
    """Submit all but the injected at once, that one in time, and run to the end."""
    running: dict[int, Stream] = {}

    def submit(stream: Stream) -> None:
        stream.submitted_s = time.perf_counter()
        running[engine.submit(stream.prompt, stream.num_outputs)] = stream

    injected = [stream for stream in streams if stream.is_injected]
    for stream in streams:
        if not stream.is_injected:
            submit(stream)
    while running:
        news = engine.step()
        now_s = time.perf_counter()
        for key, num_tokens in news:
            running[key].token_times_s += [now_s] * num_tokens
        running = {key: stream for key, stream in running.items() if len(stream.token_times_s) < stream.num_outputs}
        if injected and len(streams[0].token_times_s) >= INJECT_AFTER:
            submit(injected.pop())


def figures_of(work: Work, streams: Sequence[Stream]) -> Figures:
    """What the times say. Raises ValueError when an engine gave another number of tokens than it was asked for."""
    for stream in streams:
        if len(stream.token_times_s) != stream.num_outputs:
            raise ValueError(
                f"{work.name}: {len(stream.token_times_s)} tokens came, {stream.num_outputs} were asked for"
            )
    if work.has_long_prompt:
        return _blocking_figures(streams)
    begin_s = min(stream.submitted_s for stream in streams)
    last_first_s = max(stream.token_times_s[0] for stream in streams)
    if work.is_prefill:
        return {PREFILL.name: work.num_streams * work.prompt / (last_first_s - begin_s)}
    first_end_s = min(stream.token_times_s[-1] for stream in streams)
    count = sum(last_first_s < at_s <= first_end_s for stream in streams for at_s in stream.token_times_s)
    wall_s = max(stream.token_times_s[-1] for stream in streams) - begin_s
    return {
        DECODE.name: count / (first_end_s - last_first_s),
        "output_tokens_per_s": work.num_streams * work.output / wall_s,
        "last_ttft_s": last_first_s - begin_s,
    }


def _blocking_figures(streams: Sequence[Stream]) -> Figures:
    """Gaps of the streams that ran, once the long prompt had come, and how long that one waited."""
    *running, long = streams
    gaps = [gap for stream in running for gap in stream.gaps]
    before = [seconds for end_s, seconds in gaps if end_s <= long.submitted_s]
    after = [seconds for end_s, seconds in gaps if end_s > long.submitted_s]
    return {
        WORST_GAP.name: 1e3 * max(after),
        LONG_TTFT.name: long.token_times_s[0] - long.submitted_s,
        "median_gap_before_ms": 1e3 * statistics.median(before),
    }
