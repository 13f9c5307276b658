"""What this process may use of the machine: cores by affinity and cgroup quota, memory by the cgroup's limit."""

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
CGROUP_V1_LIMIT = CGROUP / "memory" / "memory.limit_in_bytes"


def usable_cores() -> int:
    """Cores this process may run on: the affinity mask, rounded down by a cgroup CPU quota, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _read(CGROUP / "cpu.max").split()
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, int(quota[0]) // int(quota[1]))
    return max(cores, 1)


def usable_memory_bytes() -> int:
    """Physical memory, or the cgroup's limit when that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for file in (CGROUP / "memory.max", CGROUP_V1_LIMIT):
        limit = _read(file).strip()
        if limit.isdigit():
            physical = min(physical, int(limit))
    return physical


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
