"""What one event of a stream costs the API process, in CPU time.

    python benchmarks/event_cost.py --url http://127.0.0.1:8000/v1 --pid PID --model NAME

PID is the API process (the parent of the engine process). Opens streams, reads them to their ends and divides its CPU
time by the events received; a run with one token a stream before it tells what the requests themselves cost.
"""

import argparse
import asyncio
import json
import os
from pathlib import Path
from urllib.parse import urlsplit


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def read_stream(host: str, port: int, path: str, body: bytes) -> int:
    """Post the body, read to the end; the number of events."""
    reader, writer = await asyncio.open_connection(host, port)
    head = (
        f"POST {path}/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    num_events = 0
    while data := await reader.read(1 << 16):
        num_events += data.count(b"data: ")
    writer.close()
    return num_events


async def run(options: argparse.Namespace, num_tokens: int) -> tuple[int, float]:
    """All streams at once: (events, CPU seconds of the API process)."""
    url = urlsplit(options.url)
    body = {
        "model": options.model, "messages": [{"role": "user", "content": "go"}], "stream": True,
        "max_tokens": num_tokens, "ignore_eos": True,
    }  # fmt: skip
    data = json.dumps(body).encode()
    before_s = cpu_s(options.pid)
    streams = [read_stream(url.hostname or "", url.port or 80, url.path, data) for _ in range(options.streams)]
    num_events = sum(await asyncio.gather(*streams))
    return num_events, cpu_s(options.pid) - before_s


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=300)
    options = parser.parse_args()
    await run(options, 1)
    short_events, short_s = await run(options, 1)
    long_events, long_s = await run(options, options.tokens)
    print(f"request: {1e6 * short_s / options.streams:.0f} us; events: {long_events}")
    print(f"event: {1e6 * (long_s - short_s) / (long_events - short_events):.1f} us")


if __name__ == "__main__":
    asyncio.run(main())
