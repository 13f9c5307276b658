"""Prefix sharing: one request with a 1,000-token prefix, then 31 with the same prefix and suffixes of 32 tokens.

    python benchmarks/prefix.py --rounds 5

First one after the other (time to first token, cold against cached), then all 32 at once (prompt tokens computed).
"""

import argparse
import random
import statistics

from paceline.config import EngineConfig
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from streams import Stream, random_prompt, run_streams

PREFIX, SUFFIX, REQUESTS, OUTPUT = 1000, 32, 32, 4


def fresh(engine: Engine, rng: random.Random) -> list[Stream]:
    prefix = random_prompt(rng, engine, PREFIX)
    return [Stream(prefix + random_prompt(rng, engine, SUFFIX), OUTPUT) for _ in range(REQUESTS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    engine = load_engine(EngineConfig(max_num_seqs=64, kv_memory_bytes=1 << 30, num_threads=2))
    rng, first_id, ratios = random.Random(0), 0, []
    for _ in range(options.rounds):
        streams = fresh(engine, rng)
        for stream in streams:
            run_streams(engine, [stream], first_id)
            first_id += 1
        cold, warm = streams[0].ttft_s, statistics.median(stream.ttft_s for stream in streams[1:])
        ratios.append(cold / warm)
        cached = {stream.num_cached_tokens for stream in streams[1:]}
        print(f"in turn: TTFT {cold * 1e3:.0f} ms cold, {warm * 1e3:.1f} ms cached; cached_tokens {sorted(cached)}")
        streams = fresh(engine, rng)
        run_streams(engine, streams, first_id)
        first_id += REQUESTS
        computed = sum(len(stream.prompt) - stream.num_cached_tokens for stream in streams)
        bound = PREFIX + REQUESTS * SUFFIX + REQUESTS * engine.limits.block_size
        print(f"at once: {computed} prompt tokens computed, bound {bound}")
    print(f"TTFT ratio: median {statistics.median(ratios):.1f} ({min(ratios):.1f}-{max(ratios):.1f})")


if __name__ == "__main__":
    main()
