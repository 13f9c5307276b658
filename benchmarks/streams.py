"""Requests of random token ids driven through an engine in process: the ground under the serving benchmarks."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.engine.engine import Engine

GREEDY = SamplingParams(temperature=0.0)


@dataclass
class Stream:
    """One request and when its tokens came. `stop_after`: the text side ends it there, whatever max_tokens says."""

    prompt: list[int]
    max_tokens: int
    stop_after: int | None = None
    submitted_s: float = 0.0
    token_times_s: list[float] = field(default_factory=list)
    num_cached_tokens: int = 0

    @property
    def ttft_s(self) -> float:
        return self.token_times_s[0] - self.submitted_s


def random_prompt(rng: random.Random, engine: Engine, num_tokens: int) -> list[int]:
    return [rng.randrange(10, engine.limits.vocab_size) for _ in range(num_tokens)]


def run_streams(
    engine: Engine,
    streams: list[Stream],
    first_id: int = 0,
    after_step: Callable[[], None] = lambda: None,
    sampling: SamplingParams = GREEDY,
) -> float:
    """Submit all at once, run to the end; the wall time."""
    start_s = time.perf_counter()
    for index, stream in enumerate(streams):
        stream.submitted_s = start_s
        request = Request(
            RequestId(first_id + index),
            token_array(stream.prompt),
            StopRule(stream.max_tokens),
            sampling,
            arrival_s=index,
        )
        engine.submit(request)
    while engine.has_work():
        outputs = engine.step()
        now_s = time.perf_counter()
        after_step()
        for output in outputs:
            stream = streams[output.request_id - first_id]
            stream.num_cached_tokens = output.num_cached_tokens
            stream.token_times_s += [now_s] * len(output.tokens)
            if stream.stop_after is not None and len(stream.token_times_s) >= stream.stop_after:
                engine.finish(output.request_id, output.choice_index, stream.stop_after)
    return time.perf_counter() - start_s


def decode_tokens_per_s(streams: list[Stream]) -> float:
    """Tokens between the last stream's first token and the first stream's last, over that time."""
    begin_s = max(stream.token_times_s[0] for stream in streams)
    end_s = min(stream.token_times_s[-1] for stream in streams)
    count = sum(begin_s < at_s <= end_s for stream in streams for at_s in stream.token_times_s)
    return count / (end_s - begin_s)
