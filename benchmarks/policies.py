"""Policies live and simulated, side by side: static against continuous batching, reserve-max against learned lengths.

    python benchmarks/policies.py --rounds 3

The real model runs each policy on the same requests, all there at the start: exact lengths for static and
continuous, variable and equal; for admission, answers that end by themselves, max_tokens 4 × their mean, and a small
pool. The simulator runs the same requests with a step time fitted to the recording of one continuous run. What is
compared is the ratio: a fitted law knows this machine at that hour.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.config import EngineConfig
from paceline.core.loop import StepLoop
from paceline.core.policy import LearnedReserve, Reserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.costs.fit import fit_step_time
from paceline.costs.step import StepTime
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from paceline.sim.fleet import Fleet, Traffic
from paceline.sim.policies import Policy, PolicyKind
from paceline.sim.recording import read_recording
from paceline.sim.replay import replay_all
from paceline.sim.replica import Replica
from paceline.sim.requests import RequestMaker
from paceline.sim.reserve_max import ReserveMax
from paceline.sim.router import RoundRobin
from paceline.sim.static_batching import StaticScheduler
from paceline.workload.arrivals import Constant
from paceline.workload.distributions import Clipped, Distribution, Fixed, Geometric, Uniform
from paceline.workload.item import WorkItem
from paceline.workload.lengths import Lengths
from paceline.workload.workload import Workload
from streams import Stream, run_streams

GREEDY = SamplingParams(temperature=0.0)
TOKEN_BYTES, BLOCK_SIZE = 23_040, 16  # SmolLM2-135M in bfloat16
MEAN_OUTPUT = 48
LONGEST = 4 * MEAN_OUTPUT
CHUNK = 256


@dataclass(frozen=True)
class Case:
    """Requests under one policy. `max_tokens` None: exact lengths."""

    kind: PolicyKind
    items: Sequence[WorkItem]
    batch: int
    pool_tokens: int
    max_tokens: int | None = None

    @property
    def num_tokens(self) -> int:
        return sum(item.output_tokens for item in self.items)


def items_of(output: Distribution, num_requests: int, seed: int) -> list[WorkItem]:
    workload = Workload(Lengths(Uniform(16, 96), output), Constant(1.0), seed=seed)
    return [replace(item, arrival_s=0.0) for item in workload.items(num_requests)]


def prompt_of(item: WorkItem, engine: Engine) -> list[int]:
    tokens = RequestMaker().request(RequestId(0), item, 0.0).prompt
    return [10 + token % (engine.limits.vocab_size - 10) for token in tokens]


def live(case: Case, threads: int, record: Path | None = None) -> float:
    """Output tokens a second of the real model."""
    config = EngineConfig(
        max_num_seqs=case.batch,
        max_num_batched_tokens=4_096 if case.kind is PolicyKind.STATIC else CHUNK,
        max_model_len=1_024,
        kv_memory_bytes=case.pool_tokens * TOKEN_BYTES,
        num_threads=threads,
        record=None if record is None else str(record),
    )
    reserve: Reserve = ReserveMax(BLOCK_SIZE) if case.kind is PolicyKind.RESERVE_MAX else LearnedReserve(BLOCK_SIZE)
    engine = load_engine(config, reserve)
    if case.kind is PolicyKind.STATIC:
        return case.num_tokens / run_static(case, engine)
    streams = [
        Stream(prompt_of(item, engine), case.max_tokens or item.output_tokens, stop_after=item.output_tokens)
        for item in case.items
    ]
    return case.num_tokens / run_streams(engine, streams)


def run_static(case: Case, engine: Engine) -> float:
    """The comparison scheduler on the real executor; the wall time."""
    blocks_per_row = case.pool_tokens // BLOCK_SIZE // case.batch
    scheduler = StaticScheduler(case.batch, blocks_per_row)
    loop = StepLoop(scheduler, engine._loop._executor)
    for item in case.items:
        stop = StopRule(item.output_tokens)
        assert item.prompt_tokens + item.output_tokens <= blocks_per_row * BLOCK_SIZE
        scheduler.submit(Request(RequestId(item.index), token_array(prompt_of(item, engine)), stop, GREEDY))
    start_s = time.perf_counter()
    while scheduler.has_work():
        loop.step()
    return time.perf_counter() - start_s


def simulated(case: Case, step_time: StepTime) -> float:
    """Output tokens a second of the same requests on the virtual clock."""
    policy = Policy(case.kind, case.batch, CHUNK, pool_tokens=case.pool_tokens, max_context=1_024)
    fleet = Fleet([Replica(policy, step_time)], RoundRobin(), RequestMaker(max_tokens=case.max_tokens))
    return case.num_tokens / max(record.ended_s for record in fleet.run(Traffic(case.items)))


def pairs(num_requests: int, seed: int) -> dict[str, tuple[Case, Case]]:
    """What is compared: (ours, the other)."""
    varied = items_of(Clipped(Geometric(MEAN_OUTPUT), 1, LONGEST), num_requests, seed)
    equal = items_of(Fixed(MEAN_OUTPUT), num_requests, seed)
    roomy, tight = 16 * 512, 2_048
    return {
        "continuous / static, variable lengths": (
            Case(PolicyKind.CHUNKED, varied, 16, roomy),
            Case(PolicyKind.STATIC, varied, 16, roomy),
        ),
        "continuous / static, equal lengths": (
            Case(PolicyKind.CHUNKED, equal, 16, roomy),
            Case(PolicyKind.STATIC, equal, 16, roomy),
        ),
        "learned / reserve-max": (
            Case(PolicyKind.CHUNKED, varied, 64, tight, LONGEST),
            Case(PolicyKind.RESERVE_MAX, varied, 64, tight, LONGEST),
        ),
    }


def fitted(case: Case, threads: int) -> StepTime:
    """A step time of this machine, from the recording of one run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.jsonl"
        live(case, threads, path)
        [part] = replay_all(read_recording(path))
    law, error = fit_step_time(part.samples)
    print(f"{law}\noff by {error.median:.1%} (median), {error.p90:.1%} (p90) on steps it was not fitted to", flush=True)
    return law


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    law = fitted(next(iter(pairs(options.requests, 0).values()))[0], options.threads)
    for name in pairs(1, 0):
        measured, predicted = [], []
        for seed in range(options.rounds):
            ours, other = pairs(options.requests, seed)[name]
            measured.append(live(ours, options.threads) / live(other, options.threads))
            predicted.append(simulated(ours, law) / simulated(other, law))
        print(f"{name}: live {_row(measured)}, simulated {_row(predicted)}", flush=True)


def _row(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} x ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    main()
