"""What HTTP costs: streams of a server, its client on the same machine, against the engine in process, in turn.

    python benchmarks/over_http.py --streams 64 --rounds 7

Prompt 128 tokens of ids, output 128, greedy, end of sequence ignored. Both engines stay loaded; the one whose turn it
is not rests. Decode tokens/s: between the last stream's first token and the first stream's last, as the client saw
them. Prints both and the paired ratio.
"""

import argparse
import asyncio
import random
import signal
import subprocess
import sys
import time

from paceline.bench.endpoint import Endpoint
from paceline.bench.experiment import open_caller
from paceline.bench.load import Caller, Load, run_load
from paceline.bench.pairs import paired_ratio
from paceline.config import EngineConfig
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from paceline.workload.item import WorkItem
from paceline.workload.segments import new_segment
from startup import first_text_s, free_port
from streams import Stream, decode_tokens_per_s, random_prompt, run_streams

PROMPT, OUTPUT = 128, 128


def in_process(engine: Engine, num_streams: int, rng: random.Random, first_id: int) -> float:
    streams = [Stream(random_prompt(rng, engine, PROMPT), OUTPUT) for _ in range(num_streams)]
    run_streams(engine, streams, first_id)
    return decode_tokens_per_s(streams)


async def over_http(caller: Caller, num_streams: int, first_index: int) -> float:
    items = [WorkItem(index, None, (new_segment(first_index + index, PROMPT),), OUTPUT) for index in range(num_streams)]
    run = await run_load(caller, Load(items, concurrency=num_streams, prompt_seed=first_index))
    assert all(record.error is None for record in run.records), [record.error for record in run.records]
    times_s = [record.event_times_s for record in run.records]
    begin_s, end_s = max(times[0] for times in times_s), min(times[-1] for times in times_s)
    tokens = sum(
        count
        for record in run.records
        for at_s, count in zip(record.event_times_s, record.event_tokens, strict=True)
        if begin_s < at_s <= end_s
    )
    return tokens / (end_s - begin_s)


async def measure(url: str, engine: Engine, num_streams: int, num_rounds: int) -> dict[str, list[float]]:
    rng = random.Random(0)
    speeds: dict[str, list[float]] = {"in process": [], "HTTP": []}
    async with open_caller(Endpoint(url)) as caller:
        await over_http(caller, num_streams, 10**6)
        for round_index in range(num_rounds):
            first = round_index * num_streams
            speeds["in process"].append(in_process(engine, num_streams, rng, first))
            speeds["HTTP"].append(await over_http(caller, num_streams, first))
            print(f"round {round_index + 1}: " + ", ".join(f"{name} {seen[-1]:.0f}" for name, seen in speeds.items()))
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-m", "paceline.cli", "serve", options.model, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first_text_s(port, options.model, time.perf_counter())
        engine = load_engine(EngineConfig(model=options.model, kv_memory_bytes=1 << 30))
        speeds = asyncio.run(measure(f"http://127.0.0.1:{port}", engine, options.streams, options.rounds))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    ratio = paired_ratio("decode tokens/s", "HTTP", "in process", speeds["HTTP"], speeds["in process"])
    assert ratio is not None
    print(f"HTTP / in process {ratio.ratio:.3f} ({ratio.low:.3f}-{ratio.high:.3f})")


if __name__ == "__main__":
    main()
