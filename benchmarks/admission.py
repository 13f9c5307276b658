"""Admission by expected peak against reserving max_tokens: ShareGPT-like lengths, max_tokens 4 × the mean, saturated.

    python benchmarks/admission.py --rounds 5

The true length of an output is unknown to the scheduler: the text side ends it, as a stop string would. Alternating
rounds of the same requests; throughput ratio, KV use while requests wait (once a quarter has finished: lengths are
learned), share of tokens computed again.
"""

import argparse
import math
import random
import statistics

from paceline.config import EngineConfig
from paceline.core.policy import LearnedReserve, Reserve
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from paceline.sim.reserve_max import ReserveMax
from streams import Stream, random_prompt, run_streams

MEAN_PROMPT, MEAN_OUTPUT = 161, 338  # ShareGPT as the vLLM paper gives it
BLOCK_SIZE = 16


def workload(engine: Engine, num_requests: int, seed: int) -> list[Stream]:
    rng = random.Random(seed)
    streams = []
    for _ in range(num_requests):
        prompt = min(4 * MEAN_PROMPT, max(2, int(rng.lognormvariate(math.log(MEAN_PROMPT) - 0.32, 0.8))))
        output = min(4 * MEAN_OUTPUT, max(1, int(rng.lognormvariate(math.log(MEAN_OUTPUT) - 0.32, 0.8))))
        streams.append(Stream(random_prompt(rng, engine, prompt), 4 * MEAN_OUTPUT, stop_after=output))
    return streams


def measure(reserve: Reserve, pool_tokens: int, num_requests: int, seed: int) -> dict[str, float]:
    token_bytes = 23_040  # SmolLM2-135M in bfloat16
    config = EngineConfig(
        kv_memory_bytes=pool_tokens * token_bytes, max_num_seqs=128, max_model_len=2048, num_threads=2
    )
    engine = load_engine(config, reserve)
    streams = workload(engine, num_requests, seed)
    usage: list[float] = []

    def note_usage() -> None:
        gauges = engine.gauges()
        is_warm = sum(len(stream.token_times_s) == stream.stop_after for stream in streams) >= num_requests // 4
        if gauges.num_waiting and is_warm:
            usage.append(gauges.num_blocks_in_use / gauges.num_blocks_total)

    wall_s = run_streams(engine, streams, after_step=note_usage)
    outputs = sum(len(stream.token_times_s) for stream in streams)
    computed = sum(len(stream.prompt) for stream in streams) + outputs
    recomputed = engine.scheduler.tally.num_recomputed_tokens
    return {
        "tokens_per_s": outputs / wall_s,
        "kv_use": statistics.mean(usage),
        "recomputed": recomputed / (computed + recomputed),
        "preemptions": engine.scheduler.num_preemptions,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--pool", type=int, default=4096, help="tokens the KV pool holds")
    options = parser.parse_args()
    ratios = []
    for seed in range(options.rounds):
        learned = measure(LearnedReserve(BLOCK_SIZE), options.pool, options.requests, seed)
        reserved = measure(ReserveMax(BLOCK_SIZE), options.pool, options.requests, seed)
        ratios.append(learned["tokens_per_s"] / reserved["tokens_per_s"])
        print(
            f"round {seed}: learned {_row(learned)} | reserve-max {_row(reserved)} | ratio {ratios[-1]:.2f}", flush=True
        )
    print(f"throughput ratio: median {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")


def _row(figures: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


if __name__ == "__main__":
    main()
