"""This machine as hardware: measured in under a second, with what NumPy does on the cores we may use.

A check of the order of magnitude: our kernels reach more arithmetic (int8) and about this bandwidth. Exact predictions
are the fitted step time's business.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from paceline.costs.hardware import Hardware
from paceline.engine.machine import usable_cores, usable_memory_bytes

READ_BYTES = 1 << 26
MATRIX_WIDTH = 768
NUM_ROUNDS = 5


def measure_this_machine() -> Hardware:
    """Read bandwidth of all our cores, float32 matrix products, and the memory we may use."""
    num_threads = usable_cores()
    parts = [np.ones(READ_BYTES // 8) for _ in range(num_threads)]
    with ThreadPoolExecutor(num_threads) as threads:
        read_s = _least_s(lambda: list(threads.map(np.sum, parts)))
    matrix = np.ones((MATRIX_WIDTH, MATRIX_WIDTH), dtype=np.float32)
    product_s = _least_s(lambda: matrix @ matrix)
    return Hardware(
        name="this machine",
        flops_per_s=2.0 * MATRIX_WIDTH**3 / product_s,
        bytes_per_s=num_threads * READ_BYTES / read_s,
        memory_bytes=usable_memory_bytes(),
        source=f"measured with NumPy on {num_threads} cores, float32, the best of {NUM_ROUNDS}",
    )


def _least_s(action: Callable[[], object]) -> float:
    """The shortest of a few runs: what others did meanwhile only adds."""
    times = []
    for _ in range(NUM_ROUNDS):
        started_s = time.perf_counter()
        action()
        times.append(time.perf_counter() - started_s)
    return min(times)
