"""Batching pays: output tokens/s at 1…N streams (prompt 128, output 128, greedy, ignore EOS), alternating rounds.

    python benchmarks/batching.py --streams 1 2 4 8 16 32 64 --rounds 5 [--llama PATH/llama-batched-bench --gguf FILE]

With --llama, llama.cpp's llama-batched-bench runs the same work in the same rounds (no sampling, no HTTP: its upper
bound). One JSON line a measurement; a table of medians and paired ratios at the end.
"""

import argparse
import json
import random
import statistics
import subprocess

from paceline.config import EngineConfig
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from streams import Stream, decode_tokens_per_s, random_prompt, run_streams

PROMPT, OUTPUT = 128, 128


def ours(engine: Engine, num_streams: int, rng: random.Random, first_id: int) -> dict[str, float]:
    streams = [Stream(random_prompt(rng, engine, PROMPT), OUTPUT) for _ in range(num_streams)]
    wall_s = run_streams(engine, streams, first_id)
    return {"decode": decode_tokens_per_s(streams), "end_to_end": num_streams * OUTPUT / wall_s}


def llama(binary: str, gguf: str, num_streams: int, threads: int) -> dict[str, float]:
    sizes = [
        "-npp",
        str(PROMPT),
        "-ntg",
        str(OUTPUT),
        "-npl",
        str(num_streams),
        "-c",
        str((PROMPT + OUTPUT) * num_streams),
    ]
    shape = [
        "-b",
        "2048",
        "-ub",
        "512",
        "-t",
        str(threads),
        "-tb",
        str(threads),
        "-fa",
        "on",
        "--output-format",
        "jsonl",
    ]
    answer = subprocess.run([binary, "-m", gguf, *sizes, *shape], capture_output=True, text=True, check=True).stdout
    row = json.loads(next(line for line in answer.splitlines() if line.startswith('{"n_kv_max"')))
    return {"decode": row["speed_tg"], "end_to_end": num_streams * OUTPUT / row["t"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quantization", help="int8: weights requantized at load")
    parser.add_argument("--isa", help="avx512, avx2 or portable: this set's kernels, not the machine's best")
    parser.add_argument("--llama")
    parser.add_argument("--gguf")
    options = parser.parse_args()
    config = EngineConfig(
        model=options.model,
        num_threads=options.threads,
        quantization=options.quantization,
        isa=options.isa,
        kv_memory_bytes=1 << 30,
    )
    engine = load_engine(config)
    rng, seen, first_id = random.Random(0), {}, 0
    for round_index in range(options.rounds):
        for num_streams in options.streams:
            row = {"paceline": ours(engine, num_streams, rng, first_id)}
            first_id += num_streams
            if options.llama:
                row["llama.cpp"] = llama(options.llama, options.gguf, num_streams, options.threads)
            for name, figures in row.items():
                print(json.dumps({"round": round_index, "streams": num_streams, "engine": name} | figures), flush=True)
                seen.setdefault((num_streams, name), []).append(figures["decode"])
    for num_streams in options.streams:
        cells = [_cell(name, figures) for (streams, name), figures in seen.items() if streams == num_streams]
        if options.llama:
            pairs = zip(seen[num_streams, "paceline"], seen[num_streams, "llama.cpp"], strict=True)
            cells.append(_cell("ratio", [mine / theirs for mine, theirs in pairs]))
        print(f"{num_streams:4d} streams  " + "  ".join(cells))


def _cell(name: str, figures: list[float]) -> str:
    return f"{name} {statistics.median(figures):.2f} ({min(figures):.2f}-{max(figures):.2f})"


if __name__ == "__main__":
    main()
