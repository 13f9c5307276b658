"""Models of one or a few operations, to run any backend through its public interface alone.

The trick: activations are rows of an embedding table and logits are hidden states, so a test chooses the input of an
operation by token id and reads its output as logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from paceline.errors import ConfigError
from paceline.ops.cpu import INSTRUCTION_SETS, CpuBackend
from paceline.ops.protocol import (
    Backend,
    Batch,
    Float32Array,
    HostTensor,
    Int32Array,
    KvFormat,
    KvLayout,
    Ops,
    RotaryTable,
    SampleBatch,
    Session,
    SessionShape,
    Tensor,
    TensorKind,
)

NUM_POSITIONS = 512
BLOCK_SIZE = 16

MakeHidden = Callable[[Backend], Callable[[Ops], Tensor]]


@dataclass
class OpModel:
    """hidden as given; logits are the hidden rows."""

    vocab_size: int
    rotary: RotaryTable
    make_hidden: Callable[[Ops], Tensor]

    def hidden(self, ops: Ops) -> Tensor:
        return self.make_hidden(ops)

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        return ops.take_rows(hidden)


def rotary_table(width: int) -> RotaryTable:
    angles = np.outer(np.arange(NUM_POSITIONS), 100.0 ** (-np.arange(width // 2) / (width // 2))).astype(np.float32)
    return RotaryTable(np.cos(angles), np.sin(angles))


def float_tensor(values: NDArray[np.floating], name: str = "x") -> HostTensor:
    rows = np.ascontiguousarray(np.atleast_2d(values), np.float32)
    return HostTensor(name, TensorKind.F32, rows.shape[0], rows.shape[1], rows.view(np.uint8))


def kv_layout(num_layers: int = 1, num_kv_heads: int = 2, head_width: int = 16, kv_format: str = "float32") -> KvLayout:
    return KvLayout(num_layers, 64, BLOCK_SIZE, num_kv_heads, head_width, KvFormat(kv_format))


def make_session(backend: Backend, make: MakeHidden, kv: KvLayout | None = None, max_tokens: int = 600) -> Session:
    kv = kv or kv_layout()
    return backend.session(OpModel(0, rotary_table(kv.head_width), make(backend)), SessionShape(max_tokens, 16, kv))


def int32(values: object) -> Int32Array:
    return np.array(values, np.int32)


def tables_of(num_slots: int, blocks_each: int) -> Int32Array:
    """Block tables with every block somewhere else than its neighbour."""
    blocks = np.random.default_rng(3).permutation(64)[: num_slots * blocks_each]
    return int32(blocks.reshape(num_slots, blocks_each))


def batch_of(rows: Sequence[tuple[int, int, Sequence[int]]], tables: Int32Array | None = None) -> Batch:
    """Rows are (slot, first position, tokens)."""
    return Batch(
        tokens=int32([token for _, _, tokens in rows for token in tokens]),
        positions=int32([start + i for _, start, tokens in rows for i in range(len(tokens))]),
        row_starts=int32(np.cumsum([0] + [len(tokens) for _, _, tokens in rows])),
        slots=int32([slot for slot, _, _ in rows]),
        block_tables=tables_of(1, 40) if tables is None else tables,
    )


def run_tokens(backend: Backend, make: MakeHidden, num_tokens: int) -> Float32Array:
    """What the model makes of tokens 0, 1, ... in one row."""
    session = make_session(backend, make)
    session.forward(batch_of([(0, 0, range(num_tokens))]))
    return session.logits(int32(np.arange(num_tokens)))


CPU_BACKENDS = [(isa, num_threads) for isa in INSTRUCTION_SETS for num_threads in (1, 2)]


def cpu_backend(isa: str, num_threads: int = 1, per_channel: bool = False) -> CpuBackend:
    try:
        return CpuBackend(num_threads, isa, per_channel)
    except ConfigError as error:
        pytest.skip(error.message)


def same_bits(a: Float32Array, b: Float32Array) -> bool:
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))


SAMPLE_DEFAULTS = {
    "targets": (-1, np.int32),
    "slots": (0, np.int32),
    "num_known": (0, np.int32),
    "num_prompt": (0, np.int32),
    "temperature": (0.0, np.float32),
    "top_k": (0, np.int32),
    "top_p": (1.0, np.float32),
    "min_p": (0.0, np.float32),
    "repetition": (1.0, np.float32),
    "presence": (0.0, np.float32),
    "frequency": (0.0, np.float32),
    "seeds": (0, np.uint64),
    "num_top": (0, np.int32),
    "mask_rows": (-1, np.int32),
}


def sample_batch(token_rows: Sequence[int], bias: Sequence[dict[int, float]] = (), **fields: object) -> SampleBatch:
    """Neutral but for `fields`, each one value for all rows or one a row. `histories` and `masks` may be among them."""
    count = len(token_rows)
    biases = list(bias) or [{}] * count
    arrays = {
        name: np.broadcast_to(np.asarray(fields.pop(name, default), dtype), count).copy()
        for name, (default, dtype) in SAMPLE_DEFAULTS.items()
    }
    masks = np.ascontiguousarray(fields.pop("masks", np.zeros((0, 1))), np.uint32)
    histories = int32(np.atleast_2d(fields.pop("histories", np.zeros((1, 8)))))
    assert not fields, f"unknown fields {list(fields)}"
    return SampleBatch(
        token_rows=int32(token_rows),
        bias_starts=int32(np.cumsum([0] + [len(row) for row in biases])),
        bias_ids=int32([token for row in biases for token in row]),
        bias_values=np.array([value for row in biases for value in row.values()], np.float32),
        masks=masks,
        histories=histories,
        **arrays,
    )


def logits_session(backend: Backend, logits: NDArray[np.floating]) -> Session:
    """A session after a forward whose token i has the logits logits[i]."""
    rows = np.atleast_2d(np.asarray(logits, np.float32))
    session = make_session(
        backend, lambda b: (lambda table: lambda ops: ops.embed(table))(b.weight([float_tensor(rows)]))
    )
    session.forward(batch_of([(0, 0, range(len(rows)))]))
    return session
