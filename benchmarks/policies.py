"""Policies live and simulated, side by side: static against continuous batching, reserve-max against learned lengths.

    python benchmarks/policies.py --rounds 3

The real model runs each policy on the same requests:

table      the first --requests of the published draw of 300 (docs/simulation.md), at its own arrival times
short      prompts of 16 tokens, geometric answers of mean 64, all there at the start: nearly all of it decoding
equal      equal lengths, the control
reserve    answers of mean 64 that end by themselves, max_tokens 768, a pool of twice that

A round of all cases takes about two minutes on two cores. The simulator runs the same requests with a step time fitted
to a recording of this machine, and with the published law. What is compared is the ratio: a fitted law knows this
machine at that hour, and a small CPU has another price of a prompt token than the published law.
"""

import argparse
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paceline.config import EngineConfig
from paceline.core.loop import StepLoop
from paceline.core.policy import LearnedReserve, Reserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.costs.fit import fit_step_time
from paceline.costs.step import LinearLaw, StepTime
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
from paceline.workload.segments import new_segment
from paceline.workload.workload import Workload

GREEDY = SamplingParams(temperature=0.0)
TOKEN_BYTES, BLOCK_SIZE = 23_040, 16  # SmolLM2-135M in bfloat16
NUM_PUBLISHED = 300
ROW_TOKENS = 1_024
CHUNK = 256
MEAN_OUTPUT, MAX_TOKENS = 64, 768


@dataclass(frozen=True)
class Case:
    """Requests under one policy, at their arrival_s. `max_tokens` None: exact lengths."""

    kind: PolicyKind
    items: Sequence[WorkItem]
    batch: int
    pool_tokens: int
    max_tokens: int | None = None

    @property
    def num_tokens(self) -> int:
        return sum(item.output_tokens for item in self.items)


def published_draw() -> list[WorkItem]:
    """The 300 requests of the batching table, in the published order of draws."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / 30, NUM_PUBLISHED)).tolist()
    outputs = np.maximum(1, rng.geometric(1 / 64, NUM_PUBLISHED)).tolist()
    prompts = rng.integers(32, 256, NUM_PUBLISHED).tolist()
    return [
        WorkItem(index, arrivals[index], (new_segment(index, prompts[index]),), outputs[index])
        for index in range(NUM_PUBLISHED)
    ]


def items_of(prompt: Distribution, output: Distribution, num_requests: int, seed: int) -> list[WorkItem]:
    workload = Workload(Lengths(prompt, output), Constant(1.0), seed=seed)
    return [replace(item, arrival_s=0.0) for item in workload.items(num_requests)]


def cases(num_requests: int, seed: int) -> dict[str, tuple[Case, Case]]:
    """What is compared: (ours, the other)."""
    table = published_draw()[:num_requests]
    short = items_of(Fixed(16), Geometric(MEAN_OUTPUT), num_requests, seed)
    equal = items_of(Uniform(16, 96), Fixed(48), num_requests, seed)
    open_ended = items_of(Uniform(16, 32), Clipped(Geometric(MEAN_OUTPUT), 1, MAX_TOKENS), num_requests, seed)
    tight = 2 * (MAX_TOKENS + 32)
    return {
        **{f"table, batch {batch}": against_static(table, batch) for batch in (8, 16, 32)},
        "short, batch 32": against_static(short, 32),
        "equal, batch 16": against_static(equal, 16),
        "reserve": (
            Case(PolicyKind.CHUNKED, open_ended, 64, tight, MAX_TOKENS),
            Case(PolicyKind.RESERVE_MAX, open_ended, 64, tight, MAX_TOKENS),
        ),
    }


def against_static(items: Sequence[WorkItem], batch: int) -> tuple[Case, Case]:
    """The same requests, and room for every row, under both."""
    assert max(item.prompt_tokens for item in items) + max(item.output_tokens for item in items) <= ROW_TOKENS
    ours = Case(PolicyKind.CHUNKED, items, batch, batch * ROW_TOKENS)
    return ours, replace(ours, kind=PolicyKind.STATIC)


def prompt_of(item: WorkItem, engine: Engine) -> list[int]:
    tokens = RequestMaker().request(RequestId(0), item, 0.0).prompt
    return [10 + token % (engine.limits.vocab_size - 10) for token in tokens]


def live(case: Case, threads: int, record: Path | None = None) -> float:
    """Output tokens a second of the real model."""
    config = EngineConfig(
        max_num_seqs=case.batch,
        max_num_batched_tokens=case.batch * ROW_TOKENS if case.kind is PolicyKind.STATIC else CHUNK,
        max_model_len=ROW_TOKENS,
        kv_memory_bytes=case.pool_tokens * TOKEN_BYTES,
        num_threads=threads,
        record=None if record is None else str(record),
    )
    reserve: Reserve = ReserveMax(BLOCK_SIZE) if case.kind is PolicyKind.RESERVE_MAX else LearnedReserve(BLOCK_SIZE)
    engine = load_engine(config, reserve)
    run = run_static if case.kind is PolicyKind.STATIC else run_engine
    return case.num_tokens / run(case, engine)


def run_engine(case: Case, engine: Engine) -> float:
    """The engine; an answer that ends by itself is ended by the text side. The wall time."""
    lengths = {item.index: item.output_tokens for item in case.items}
    num_tokens: Counter[int] = Counter()

    def submit(item: WorkItem, now_s: float) -> None:
        stop = StopRule(case.max_tokens or item.output_tokens)
        prompt = token_array(prompt_of(item, engine))
        engine.submit(Request(RequestId(item.index), prompt, stop, GREEDY, arrival_s=now_s))

    def step() -> None:
        for output in engine.step():
            num_tokens[output.request_id] += len(output.tokens)
            if num_tokens[output.request_id] >= lengths[output.request_id] and output.finish_reason is None:
                engine.finish(output.request_id, output.choice_index, lengths[output.request_id])

    return drive(case.items, submit, step, engine.has_work)


def run_static(case: Case, engine: Engine) -> float:
    """The comparison scheduler on the real executor; the wall time."""
    scheduler = StaticScheduler(case.batch, case.pool_tokens // BLOCK_SIZE // case.batch)
    loop = StepLoop(scheduler, engine._loop._executor)

    def submit(item: WorkItem, now_s: float) -> None:
        prompt = token_array(prompt_of(item, engine))
        scheduler.submit(Request(RequestId(item.index), prompt, StopRule(item.output_tokens), GREEDY, arrival_s=now_s))

    return drive(case.items, submit, lambda: loop.step(), scheduler.has_work)


def drive(
    items: Sequence[WorkItem],
    submit: Callable[[WorkItem, float], None],
    step: Callable[[], object],
    has_work: Callable[[], bool],
) -> float:
    """Each request when it is due, steps as long as there is work; seconds to the last answer."""
    waiting, start_s = deque(items), time.perf_counter()
    while waiting or has_work():
        now_s = time.perf_counter() - start_s
        while waiting and (waiting[0].arrival_s or 0.0) <= now_s:
            submit(waiting.popleft(), now_s)
        if has_work():
            step()
        else:
            time.sleep(max(0.0, (waiting[0].arrival_s or 0.0) - now_s))
    return time.perf_counter() - start_s


def simulated(case: Case, step_time: StepTime) -> float:
    """Output tokens a second of the same requests on the virtual clock."""
    policy = Policy(case.kind, case.batch, CHUNK, pool_tokens=case.pool_tokens, max_context=ROW_TOKENS)
    fleet = Fleet([Replica(policy, step_time)], RoundRobin(), RequestMaker(max_tokens=case.max_tokens))
    return case.num_tokens / max(record.ended_s for record in fleet.run(Traffic(case.items)))


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
    parser.add_argument("--requests", type=int, default=80, help="of each case; 300 is the whole published draw")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--case", action="append", help="the beginning of a name; several can be given; all without")
    options = parser.parse_args()
    start_s = time.perf_counter()
    law = fitted(cases(options.requests, 0)["table, batch 16"][0], options.threads)
    names = [name for name in cases(2, 0) if not options.case or name.startswith(tuple(options.case))]
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for seed in range(options.rounds):
        compared = cases(options.requests, seed)
        for name in names:
            ours, other = compared[name]
            rates = live(ours, options.threads), live(other, options.threads)
            print(f"round {seed}, {name}: {rates[0]:.0f} and {rates[1]:.0f} tokens/s", flush=True)
            rows[name].append((rates[0] / rates[1], ratio(ours, other, law), ratio(ours, other, LinearLaw())))
    print(f"\n{'ratio':18} {'live':20} {'simulated, fitted':20} simulated, published law")
    for name in names:
        measured, predicted, published = zip(*rows[name], strict=True)
        print(f"{name:18} {spread(measured):20} {spread(predicted):20} {spread(published)}")
    whole = {batch: ratio(*against_static(published_draw(), batch), law) for batch in (8, 16, 32)}
    told = ", ".join(f"batch {batch} {times:.2f} x" for batch, times in whole.items())
    print(f"table, all {NUM_PUBLISHED}, simulated with the fitted law: {told}")
    print(f"{time.perf_counter() - start_s:.0f} s")


def ratio(ours: Case, other: Case, law: StepTime) -> float:
    return simulated(ours, law) / simulated(other, law)


def spread(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} x ({min(ratios):.2f}-{max(ratios):.2f})"


if __name__ == "__main__":
    main()
