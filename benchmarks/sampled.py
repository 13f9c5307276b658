"""What sampling costs: streams that draw with filters and report logprobs against greedy ones, in turn, in process.

    python benchmarks/sampled.py --streams 32 --rounds 7

Temperature 0.8, top_p 0.95, top_k 40, five alternatives a token. Prints decode tokens/s and the paired ratio.
"""

import argparse
import random

from paceline.bench.pairs import paired_ratio
from paceline.config import EngineConfig
from paceline.core.request import SamplingParams
from paceline.engine.loading import load_engine
from streams import GREEDY, Stream, decode_tokens_per_s, random_prompt, run_streams

PROMPT, OUTPUT = 128, 128
SAMPLED = SamplingParams(temperature=0.8, top_p=0.95, top_k=40, num_logprobs=5, seed=7)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    engine = load_engine(EngineConfig(model=options.model, num_threads=options.threads, kv_memory_bytes=1 << 30))
    rng = random.Random(0)
    speeds: dict[str, list[float]] = {"greedy": [], "sampled": []}
    for round_index in range(options.rounds):
        for name, sampling in (("greedy", GREEDY), ("sampled", SAMPLED)):
            streams = [Stream(random_prompt(rng, engine, PROMPT), OUTPUT) for _ in range(options.streams)]
            first_id = (2 * round_index + (name == "sampled")) * options.streams
            run_streams(engine, streams, first_id, sampling=sampling)
            speeds[name].append(decode_tokens_per_s(streams))
        print(f"round {round_index + 1}: " + ", ".join(f"{name} {seen[-1]:.0f}" for name, seen in speeds.items()))
    ratio = paired_ratio("decode tokens/s", "sampled", "greedy", speeds["sampled"], speeds["greedy"])
    assert ratio is not None
    print(f"sampled / greedy {ratio.ratio:.3f} ({ratio.low:.3f}-{ratio.high:.3f})")


if __name__ == "__main__":
    main()
