"""What a step costs besides its kernels: a decode of one token through 30 layers too small to take time.

    PYTHONPATH=src python benchmarks/kernels/step_overhead.py

The layers have the operations of a Llama, 13 tasks each, on vectors of 32 numbers (4-bit weights, so activations are
quantized). Prints microseconds a step: best and median of 300, of the whole call from Python.
"""

import time

import numpy as np

from paceline.ops.cpu import CpuBackend
from paceline.ops.protocol import (
    Activation,
    AttentionShape,
    Batch,
    HostTensor,
    KvFormat,
    KvLayout,
    Ops,
    RotaryTable,
    SessionShape,
    Tensor,
    TensorKind,
)

NUM_LAYERS = 30
WIDTH = 32
SHAPE = AttentionShape(1, 1, WIDTH, scale=1.0)


class TinyLayers:
    """A model whose kernels take next to no time."""

    vocab_size = WIDTH
    rotary = RotaryTable(np.ones((64, WIDTH // 2), np.float32), np.zeros((64, WIDTH // 2), np.float32))

    def __init__(self, backend: CpuBackend) -> None:
        def weight(num_rows: int) -> HostTensor:
            return HostTensor("w", TensorKind.Q4_0, num_rows, WIDTH, np.zeros((num_rows, 18), np.uint8))

        self.square, self.qkv = backend.weight([weight(WIDTH)]), backend.weight([weight(3 * WIDTH)])
        self.gate_up = backend.weight([weight(2 * WIDTH)])
        ones = np.ones((1, WIDTH), np.float32).view(np.uint8)
        self.ones = backend.vector(HostTensor("n", TensorKind.F32, 1, WIDTH, ones))

    def hidden(self, ops: Ops) -> Tensor:
        residual = ops.embed(self.square)
        x = ops.norm(residual, self.ones, 1e-5)
        for layer in range(NUM_LAYERS):
            q = ops.rotary_store(ops.linear(x, self.qkv), layer, SHAPE)
            x = ops.linear(ops.attend(q, layer, SHAPE), self.square)
            x, residual = ops.add_norm(x, residual, self.ones, 1e-5)
            x = ops.linear(ops.gated(ops.linear(x, self.gate_up), Activation.SILU), self.square)
            x, residual = ops.add_norm(x, residual, self.ones, 1e-5)
        return x

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.take_rows(hidden)


def main() -> None:
    kv = KvLayout(NUM_LAYERS, 4, 16, 1, WIDTH, KvFormat.BFLOAT16)
    one = np.zeros(1, np.int32)
    batch = Batch(one, one, np.array([0, 1], np.int32), one, np.zeros((1, 4), np.int32))
    for num_threads in (1, 2):
        backend = CpuBackend(num_threads)
        session = backend.session(TinyLayers(backend), SessionShape(64, 4, kv))
        times_us = []
        for _ in range(300):
            start = time.perf_counter()
            session.forward(batch)
            times_us.append((time.perf_counter() - start) * 1e6)
        times_us.sort()
        print(f"{backend.isa}, {num_threads} threads: {times_us[0]:.0f} best, {times_us[150]:.0f} median us a step")


if __name__ == "__main__":
    main()
