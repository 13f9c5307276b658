"""Weights lie one behind the other in memory that they share, and that goes back to the system after the last one."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from paceline.ops.cpu import CpuBackend
from paceline.ops.protocol import HostTensor, TensorKind

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MEBIBYTE = 1 << 20
WIDTH, ROWS = 1024, 4096


def resident_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmRSS:")[2].split()[0])


def test_memory_of_weights_goes_back_after_the_last_of_them() -> None:
    backend = CpuBackend(1)
    values = np.ones((ROWS, WIDTH), np.float32).view(np.uint8)
    tensor = HostTensor("w", TensorKind.F32, ROWS, WIDTH, values)
    weights = [backend.weight([tensor])]  # what is allocated once is allocated now
    before = resident_bytes()
    weights += [backend.weight([tensor]) for _ in range(8)]  # 16 MiB each
    held = resident_bytes() - before
    assert 8 * 16 * MEBIBYTE * 0.95 < held < 8 * 16 * MEBIBYTE + 4 * MEBIBYTE
    del weights
    del backend
    gc.collect()
    assert resident_bytes() - before < 4 * MEBIBYTE
