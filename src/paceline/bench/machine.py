"""Where and with what a result was made: part of every header."""

import os
import platform
import sys
from pathlib import Path

import aiohttp

from paceline import __version__


def versions() -> dict[str, str]:
    """Of everything between the schedule and the socket."""
    return {"paceline": __version__, "python": platform.python_version(), "aiohttp": aiohttp.__version__}


def machine() -> dict[str, str]:
    """The client's machine; the server may be elsewhere."""
    facts = {"system": platform.platform(), "cores": str(usable_cores())}
    if sys.platform == "linux":
        facts["cpu"] = proc_value("/proc/cpuinfo", "model name") or platform.machine()
        facts["memory"] = proc_value("/proc/meminfo", "MemTotal") or "unknown"
    return facts


def usable_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def proc_value(path: str, key: str) -> str | None:
    """The value of the first `key: value` line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)
