"""What this process may use of the machine: cores by affinity and cgroup quota, memory by the cgroup's limit.

Reads cgroup v2 and v1. A process is held by the limits of its own group and of every group around it, so all of them
are read, from the group that /proc/self/cgroup names up to the root. In a container the named path may not exist below
the mount (it is the host's name for it); its limits then stand at the mount's root, which is read in any case.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path("/")
V1_CPU, V1_MEMORY = "cpu", "memory"


def usable_cores() -> int:
    """Cores this process may run on: the affinity mask, rounded down by a cgroup CPU quota, at least 1.

    Rounded down: a thread that the quota stops in the middle of a step makes all others wait for it.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, int(quota)))


def usable_memory_bytes() -> int:
    """Physical memory, or the cgroup's limit when that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = memory_limit_bytes()
    return physical if limit is None else min(physical, limit)


def cpu_quota(root: Path = ROOT) -> float | None:
    """The smallest CPU quota around this process, in cores; None without one. `root`: where /proc and /sys are."""
    quotas = []
    for group in groups(root, ""):
        quotas.append(_ratio(_read(group / "cpu.max").split()))
    for group in groups(root, V1_CPU):
        quotas.append(_ratio([_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")]))
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The smallest memory limit around this process; None without one. Past `memory.high` the kernel slows us down, so
    it counts as a limit.
    """
    files = [group / name for group in groups(root, "") for name in ("memory.max", "memory.high")]
    files += [group / "memory.limit_in_bytes" for group in groups(root, V1_MEMORY)]
    limits = [_read(file) for file in files]
    return min((int(limit) for limit in limits if limit.isdigit()), default=None)


def groups(root: Path, controller: str) -> Iterator[Path]:
    """The directories of this process's cgroup and those around it, for a v1 controller, or "" for v2."""
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controller not in controllers.split(","):
            continue
        mounts = root / "sys/fs/cgroup"
        bases = (mounts / controllers, mounts / controller) if controller else (mounts, mounts / "unified")
        own = PurePosixPath(path.lstrip("/"))
        for base in bases:
            yield from (base / group for group in (own, *own.parents))


def _ratio(words: list[str]) -> float | None:
    """Quota over period, both in microseconds; None for "max", -1, or what isn't there."""
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
