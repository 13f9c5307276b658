"""The workloads and the law of the published batching tables: NumPy's default_rng in the published order of draws."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.bench.measures import spread, ttft_s
from paceline.bench.record import RequestRecord
from paceline.costs.step import LinearLaw, StepTime
from paceline.sim.fleet import Fleet, Traffic
from paceline.sim.policies import Policy
from paceline.sim.replica import Replica
from paceline.sim.requests import RequestMaker
from paceline.sim.router import RoundRobin
from paceline.workload.item import WorkItem
from paceline.workload.segments import new_segment

POOL_TOKENS = 2**20
LONG_PROMPT = 16_384


def batching_items() -> list[WorkItem]:
    """300 requests: exponential gaps of 1/30 s, geometric outputs of mean 64, prompts uniform in [32, 256)."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / 30, 300))
    outputs = np.maximum(1, rng.geometric(1 / 64, 300))
    prompts = rng.integers(32, 256, 300)
    return items_of(arrivals.tolist(), prompts.tolist(), outputs.tolist())


def items_of(arrivals: Sequence[float], prompts: Sequence[int], outputs: Sequence[int]) -> list[WorkItem]:
    """Requests that share nothing."""
    return [
        WorkItem(index, arrival_s, (new_segment(index, num_prompt),), num_output)
        for index, (arrival_s, num_prompt, num_output) in enumerate(zip(arrivals, prompts, outputs, strict=True))
    ]


@dataclass(frozen=True)
class Figures:
    """What the table says of a run."""

    tokens_per_s: float
    mean_latency_s: float
    records: tuple[RequestRecord, ...]


def simulate(items: Sequence[WorkItem], policy: Policy, step_time: StepTime | None = None) -> Figures:
    """One replica, exact lengths, the linear law."""
    fleet = Fleet([Replica(policy, step_time or LinearLaw())], RoundRobin(), RequestMaker())
    return figures(list(fleet.run(Traffic(items))))


def figures(records: Sequence[RequestRecord]) -> Figures:
    """Tokens over the time of the last, and mean time from arrival to a request's own last token."""
    tokens = sum(record.output_tokens for record in records)
    return Figures(
        tokens / max(record.ended_s for record in records),
        sum(record.ended_s - record.intended_s for record in records) / len(records),
        tuple(records),
    )


def long_prompt_items(num_requests: int, seed: int = 0) -> list[WorkItem]:
    """The batching workload at 12 requests/s, 3 % of the prompts 16,384 tokens long."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / 12, num_requests))
    outputs = np.maximum(1, rng.geometric(1 / 64, num_requests))
    prompts = rng.integers(32, 256, num_requests)
    prompts[rng.random(num_requests) < 0.03] = LONG_PROMPT
    return items_of(arrivals.tolist(), prompts.tolist(), outputs.tolist())


def p99_ttft_s(records: Sequence[RequestRecord], longest_prompt: int = LONG_PROMPT) -> float:
    """Of the requests with prompts up to this length."""
    times = spread(ttft_s(record) for record in records if record.prompt_tokens <= longest_prompt)
    assert times is not None
    return times.p99
