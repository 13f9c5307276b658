"""What this machine's noise is worth: one server against itself, A and B in turn, over HTTP.

    python benchmarks/noise.py --alternations 20

A round is 8 streams of 64 tokens. Prints the spread of throughput and of ITL p50 and p99, and of the paired ratios
A/B, whose true value is 1. No tolerance of a speed claim may be tighter than twice that spread.
"""

import argparse
import http.client
import json
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from startup import first_text_s, free_port

STREAMS, TOKENS = 8, 64


def token_times_s(port: int, model: str, seed: int) -> list[float]:
    """When each event with text of one stream was read."""
    body = {"model": model, "prompt": f"Story {seed}:", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(
        "POST", "/v1/completions", json.dumps(body | {"seed": seed}), {"Content-Type": "application/json"}
    )
    times_s = [time.perf_counter() for line in connection.getresponse() if b'"text":' in line]
    connection.close()
    return times_s


def measure(port: int, model: str, first_seed: int) -> tuple[float, float, float]:
    """Tokens/s, ITL p50 and p99 in ms."""
    start_s = time.perf_counter()
    with ThreadPoolExecutor(STREAMS) as pool:
        streams = list(pool.map(lambda index: token_times_s(port, model, first_seed + index), range(STREAMS)))
    wall_s = time.perf_counter() - start_s
    gaps_ms = sorted((b - a) * 1e3 for times in streams for a, b in pairwise(times))
    return STREAMS * TOKENS / wall_s, gaps_ms[len(gaps_ms) // 2], gaps_ms[int(len(gaps_ms) * 0.99)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--alternations", type=int, default=20)
    options = parser.parse_args()
    port = free_port()
    command = [sys.executable, "-m", "paceline.cli", "serve", options.model, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        first_text_s(port, options.model, time.perf_counter())
        measure(port, options.model, 0)
        rows = [measure(port, options.model, 100 * (index + 1)) for index in range(2 * options.alternations)]
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    for column, name in enumerate(("tokens/s", "ITL p50 ms", "ITL p99 ms")):
        values = [row[column] for row in rows]
        ratios = sorted(a / b for a, b in zip(values[::2], values[1::2], strict=True))
        spread = statistics.stdev(values) / statistics.mean(values)
        middle = f"{ratios[len(ratios) // 20]:.2f}-{ratios[-1 - len(ratios) // 20]:.2f}"
        print(f"{name:11s} median {statistics.median(values):7.2f}, deviation {spread:.1%}; A/B {middle} (5-95 %)")


if __name__ == "__main__":
    main()
