"""What a process may use, read from made-up trees of /proc and /sys: cgroup v2, v1, nested groups, containers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.engine.machine import cpu_quota, memory_limit_bytes, usable_cores, usable_memory_bytes

GIB = 2**30
V1_UNLIMITED = "9223372036854771712"


def tree(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    """A root with /proc/self/cgroup and files below /sys/fs/cgroup."""
    for name, text in ({"proc/self/cgroup": cgroup} | {f"sys/fs/cgroup/{n}": t for n, t in files.items()}).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return root


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("150000 100000", 1.5), ("50000 100000", 0.5), ("400000 100000", 4.0), ("8 0", None)],
)
def test_a_v2_quota_is_a_fraction_of_its_period(tmp_path: Path, text: str, cores: float | None) -> None:
    assert cpu_quota(tree(tmp_path, "0::/", {"cpu.max": text})) == cores


def test_the_tightest_group_around_us_counts(tmp_path: Path) -> None:
    files = {
        "system.slice/paceline.service/cpu.max": "max 100000",
        "system.slice/cpu.max": "250000 100000",
        "cpu.max": "800000 100000",
        "system.slice/paceline.service/memory.max": str(4 * GIB),
        "system.slice/memory.max": "max",
        "other.slice/memory.max": str(GIB),
        "other.slice/cpu.max": "100000 100000",
    }
    root = tree(tmp_path, "0::/system.slice/paceline.service", files)
    assert cpu_quota(root) == 2.5
    assert memory_limit_bytes(root) == 4 * GIB


def test_memory_is_limited_where_the_kernel_begins_to_throttle(tmp_path: Path) -> None:
    files = {"memory.max": str(4 * GIB), "memory.high": str(3 * GIB)}
    assert memory_limit_bytes(tree(tmp_path, "0::/", files)) == 3 * GIB


def test_v1_controllers_have_paths_of_their_own(tmp_path: Path) -> None:
    cgroup = "12:memory:/jobs/a\n4:cpu,cpuacct:/jobs/b\n1:name=systemd:/jobs"
    files = {
        "cpu,cpuacct/jobs/b/cpu.cfs_quota_us": "350000",
        "cpu,cpuacct/jobs/b/cpu.cfs_period_us": "100000",
        "cpu,cpuacct/jobs/cpu.cfs_quota_us": "-1",
        "cpu,cpuacct/jobs/cpu.cfs_period_us": "100000",
        "memory/jobs/a/memory.limit_in_bytes": V1_UNLIMITED,
        "memory/jobs/memory.limit_in_bytes": str(2 * GIB),
    }
    root = tree(tmp_path, cgroup, files)
    assert cpu_quota(root) == 3.5
    assert memory_limit_bytes(root) == 2 * GIB


def test_a_v1_container_finds_its_limits_at_the_mounts_root(tmp_path: Path) -> None:
    cgroup = "9:memory:/docker/0123abcd\n8:cpuacct,cpu:/docker/0123abcd"
    files = {
        "memory/memory.limit_in_bytes": str(GIB),
        "cpu/cpu.cfs_quota_us": "150000",
        "cpu/cpu.cfs_period_us": "50000",
    }
    root = tree(tmp_path, cgroup, files)
    assert (cpu_quota(root), memory_limit_bytes(root)) == (3.0, GIB)


def test_without_limits_or_cgroups_there_is_none(tmp_path: Path) -> None:
    assert (cpu_quota(tmp_path), memory_limit_bytes(tmp_path)) == (None, None)
    root = tree(tmp_path, "0::/", {"memory.max": "max", "cpu.max": "max 100000"})
    assert (cpu_quota(root), memory_limit_bytes(root)) == (None, None)


def test_affinity_bounds_the_cores_of_a_real_process() -> None:
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{one}])\n"
    code += "from paceline.engine.machine import usable_cores; print(usable_cores())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "1\n"


def test_this_machine_has_something_to_use() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))
    assert 0 < usable_memory_bytes() <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
