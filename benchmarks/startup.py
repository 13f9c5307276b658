"""From exec to the first token of a chat, and what an idle server costs.

    python benchmarks/startup.py --starts 5

Each start: `paceline serve` on a free port, a chat request tried until it is accepted, the time of its first text.
Then ten idle seconds: CPU time of all its processes. Also says whether any of them has torch loaded.
"""

import argparse
import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

IDLE_S = 10.0
CHAT = {"messages": [{"role": "user", "content": "Say hello."}], "stream": True, "max_tokens": 8, "temperature": 0}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def first_text_s(port: int, model: str, start_s: float, deadline_s: float = 60.0) -> float:
    """Seconds from `start_s` to the first text of a chat, retried while the server loads."""
    body = json.dumps(CHAT | {"model": model})
    while time.perf_counter() - start_s < deadline_s:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=deadline_s)
        try:
            connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status == 200:
                for line in response:
                    if b'"content":"' in line and b'"content":""' not in line:
                        return time.perf_counter() - start_s
        except OSError:
            pass
        finally:
            connection.close()
        time.sleep(0.01)
    raise SystemExit("the server gave no token in time")


def family(pid: int) -> list[int]:
    """The process and its descendants."""
    pids = [pid]
    for parent in pids:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        pids += [int(child) for child in children]
    return pids


def cpu_s(pids: list[int]) -> float:
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def measure(model: str) -> dict[str, float]:
    port, start_s = free_port(), time.perf_counter()
    command = [sys.executable, "-m", "paceline.cli", "serve", model, "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        first_s = first_text_s(port, model, start_s)
        time.sleep(1.0)
        pids = family(server.pid)
        before_s = cpu_s(pids)
        time.sleep(IDLE_S)
        idle_share = (cpu_s(pids) - before_s) / IDLE_S
        has_torch = any("libtorch" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)
        return {"first_text_s": first_s, "idle_cpu_percent": 100 * idle_share, "has_torch": float(has_torch)}
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for _ in range(options.starts):
        rows.append(measure(options.model))
        print(rows[-1], flush=True)
    firsts = [row["first_text_s"] for row in rows]
    print(f"exec to first text: median {statistics.median(firsts):.2f} s ({min(firsts):.2f}-{max(firsts):.2f})")


if __name__ == "__main__":
    main()
