"""What a server holds: memory, file descriptors and threads of its two processes, and its gauges."""

from dataclasses import dataclass
from pathlib import Path

import httpx

from running_server import RunningServer

GAUGES = ("num_requests_running", "num_requests_waiting", "num_open_requests", "kv_cache_usage_perc")


@dataclass(frozen=True)
class Footprint:
    """One moment of a server. `memory_kib` is of both processes; descriptors and threads are the API process's."""

    memory_kib: int
    num_descriptors: int
    num_threads: int


def engine_pids(server_pid: int) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{server_pid}/task/{server_pid}/children").read_text().split()]


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def footprint(server: RunningServer) -> Footprint:
    pid = server.process.pid
    statuses = [status_of(each) for each in (pid, *engine_pids(pid))]
    return Footprint(
        memory_kib=sum(int(status["VmRSS"].split()[0]) for status in statuses),
        num_descriptors=len(list(Path(f"/proc/{pid}/fd").iterdir())),
        num_threads=int(statuses[0]["Threads"]),
    )


def metric(server: RunningServer, name: str) -> float:
    """The sum of a metric's samples."""
    page = httpx.get(server.url.removesuffix("/v1") + "/metrics", timeout=10).text
    values = [
        float(line.rsplit(" ", 1)[1])
        for line in page.splitlines()
        if line.startswith((f"paceline:{name}{{", f"paceline:{name} "))
    ]
    assert values, f"no metric {name}"
    return sum(values)


def gauges(server: RunningServer) -> dict[str, float]:
    return {name: metric(server, name) for name in GAUGES}
