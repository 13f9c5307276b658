"""The reference backend: every operation in NumPy float64, evaluated when called. Slow, and meant to be read.

Owns the meaning of `ops/protocol.py`: other backends are tested against it. It also serves, slowly, where no compiler
is found. What it keeps of the exactness rules: a row is computed by itself (one matrix-vector product a token and
linear, one softmax a token and head), so its bits depend on nothing else in the step; keys and values are read as
stored, this step's too. Activations stay float64 between operations; KV is rounded to its format.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.ops.dequantize import dequantize
from paceline.ops.protocol import (
    Activation,
    AttentionShape,
    Batch,
    Float32Array,
    HostTensor,
    Int32Array,
    KvFormat,
    KvLayout,
    Model,
    RotaryTable,
    SampleBatch,
    SampleResult,
    SessionShape,
    Weight,
)
from paceline.ops.reference_sampling import sample_row

Values = NDArray[np.float64]

# Rows of a weight multiplied at a time: about a second-level cache, and too few for BLAS to wake its threads.
WEIGHT_ROWS = 128


class ReferenceBackend:
    """An `ops.protocol.Backend`. Weights are float64 arrays, exact values of what the file holds."""

    isa = "numpy-reference"

    def weight(self, parts: Sequence[HostTensor]) -> Values:
        """[sum of rows, columns]."""
        return np.concatenate([dequantize(part) for part in parts])

    def vector(self, part: HostTensor) -> Values:
        """[columns]."""
        values: Values = dequantize(part)[0]
        return values

    def session(self, model: Model, shape: SessionShape) -> "ReferenceSession":
        """Bind the model and allocate its KV pool."""
        return ReferenceSession(model, shape)


class KvPool:
    """Keys and values of every layer, each float32 [layers, blocks, block size, KV heads, head width], as stored."""

    def __init__(self, layout: KvLayout) -> None:
        shape = (layout.num_layers, layout.num_blocks, layout.block_size, layout.num_kv_heads, layout.head_width)
        self.block_size = layout.block_size
        self.kv_format = layout.kv_format
        self.keys = np.zeros(shape, np.float32)
        self.values = np.zeros(shape, np.float32)

    def store(self, layer_index: int, slots: Int32Array, keys: Values, values: Values) -> None:
        """Write [T, KV heads, head width] at pool slots (block · block size + offset)."""
        blocks, offsets = slots // self.block_size, slots % self.block_size
        self.keys[layer_index, blocks, offsets] = _as_stored(keys, self.kv_format)
        self.values[layer_index, blocks, offsets] = _as_stored(values, self.kv_format)

    def read(self, layer_index: int, slots: Int32Array) -> tuple[Values, Values]:
        """Keys and values at pool slots, each float64 [n, KV heads, head width]."""
        blocks, offsets = slots // self.block_size, slots % self.block_size
        keys, values = self.keys[layer_index, blocks, offsets], self.values[layer_index, blocks, offsets]
        return keys.astype(np.float64), values.astype(np.float64)

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first slots of a block, all layers."""
        self.keys[:, target, :num_tokens] = self.keys[:, source, :num_tokens]
        self.values[:, target, :num_tokens] = self.values[:, source, :num_tokens]


class ReferenceSession:
    """An `ops.protocol.Session`. Its state is the KV pool and the hidden states of the last forward."""

    def __init__(self, model: Model, shape: SessionShape) -> None:
        self.model = model
        self.shape = shape
        self.pool = KvPool(shape.kv)
        self.last: tuple[Batch, Values] | None = None

    def copy_blocks(self, copies: Int32Array) -> None:
        """In order: a later copy may read what an earlier one wrote."""
        for source, target, num_tokens in copies.tolist():
            self.pool.copy(source, target, num_tokens)

    def forward(self, batch: Batch) -> None:
        """Run the layers."""
        num_rows = len(batch.row_starts) - 1
        assert len(batch.tokens) <= self.shape.max_tokens, (
            f"{len(batch.tokens)} tokens, at most {self.shape.max_tokens}"
        )
        assert num_rows <= self.shape.max_rows, f"{num_rows} rows, at most {self.shape.max_rows}"
        ops = ReferenceOps(batch, self.pool, self.model.rotary, np.empty(0, np.int32))
        self.last = batch, self.model.hidden(ops)

    def hidden(self, token_rows: Int32Array) -> Float32Array:
        """Hidden states [N, D], rounded to float32."""
        assert self.last is not None, "hidden states before the first forward"
        rows: Float32Array = self.last[1][token_rows].astype(np.float32)
        return rows

    def logits(self, token_rows: Int32Array) -> Float32Array:
        """Logits [N, V]."""
        assert self.last is not None, "logits before the first forward"
        batch, hidden = self.last
        ops = ReferenceOps(batch, self.pool, self.model.rotary, token_rows)
        logits: Float32Array = self.model.logits(ops, hidden).astype(np.float32)
        return logits

    def sample(self, batch: SampleBatch) -> SampleResult:
        """One row at a time."""
        num_draws = len(batch.token_rows)
        most = int(batch.num_top.max(initial=0))
        result = SampleResult(
            tokens=np.empty(num_draws, np.int32),
            logprobs=np.empty(num_draws, np.float32),
            top_ids=np.full((num_draws, most), -1, np.int32),
            top_logprobs=np.full((num_draws, most), -np.inf, np.float32),
        )
        for index in range(num_draws):
            logits = self.logits(batch.token_rows[index : index + 1])[0]
            sample_row(batch, index, logits.astype(np.float64), result)
        return result


@dataclass(frozen=True, slots=True)
class ReferenceOps:
    """The `ops.protocol.Ops` of one step, or of its logits (`token_rows`)."""

    batch: Batch
    pool: KvPool
    rotary: RotaryTable
    token_rows: Int32Array

    def embed(self, table: Weight) -> Values:
        """[T, D]."""
        rows: Values = table[self.batch.tokens]
        return rows

    def norm(self, x: Values, weight: Weight, epsilon: float) -> Values:
        """x / sqrt(mean(x²) + epsilon) · weight."""
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        normed: Values = x / np.sqrt(mean_square + epsilon) * weight
        return normed

    def add_norm(self, x: Values, residual: Values, weight: Weight, epsilon: float) -> tuple[Values, Values]:
        """The norm of the sum, and the sum."""
        total = x + residual
        return self.norm(total, weight, epsilon), total

    def linear(self, x: Values, weight: Weight, bias: Weight | None = None, precise: bool = False) -> Values:
        """[T, rows of weight], always precise; token by token over pieces of the weight that stay in cache."""
        out = np.empty((len(x), len(weight)))
        for start in range(0, len(weight), WEIGHT_ROWS):
            piece = weight[start : start + WEIGHT_ROWS]
            for token_index, row in enumerate(x):
                out[token_index, start : start + WEIGHT_ROWS] = piece @ row
        return out if bias is None else out + bias

    def rotary_store(self, qkv: Values, layer_index: int, shape: AttentionShape) -> Values:
        """[T, H·E]."""
        num_heads, num_kv_heads = shape.num_heads, shape.num_kv_heads
        heads = qkv.reshape(len(qkv), num_heads + 2 * num_kv_heads, shape.head_width)
        rotated = self._rotate(heads[:, : num_heads + num_kv_heads])
        keys, values = rotated[:, num_heads:], heads[:, num_heads + num_kv_heads :]
        self.pool.store(layer_index, self._step_slots(), keys, values)
        return rotated[:, :num_heads].reshape(len(qkv), -1)

    def attend(self, q: Values, layer_index: int, shape: AttentionShape) -> Values:
        """[T, H·E], token by token."""
        out = np.empty_like(q)
        for row_index, slot in enumerate(self.batch.slots):
            for token_index in range(self.batch.row_starts[row_index], self.batch.row_starts[row_index + 1]):
                end = int(self.batch.positions[token_index]) + 1
                start = 0 if shape.window is None else max(0, end - shape.window)
                slots = self._pool_slots(np.full(end - start, slot), np.arange(start, end))
                keys, values = self.pool.read(layer_index, slots)
                out[token_index] = attend_token(q[token_index], keys, values, shape)
        return out

    def gated(self, gate_up: Values, activation: Activation) -> Values:
        """[T, F]."""
        gate, up = np.split(gate_up, 2, axis=-1)
        return activate(gate, activation) * up

    def take_rows(self, x: Values) -> Values:
        """[N, D]."""
        return x[self.token_rows]

    def _rotate(self, heads: Values) -> Values:
        """[T, heads, E]: the first rotated-width elements of each head turn in pairs (i, i + half); the rest stay."""
        cos, sin = (
            table[self.batch.positions, None, :].astype(np.float64) for table in (self.rotary.cos, self.rotary.sin)
        )
        half = cos.shape[-1]
        first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)

    def _step_slots(self) -> Int32Array:
        """Where each token of the step is stored."""
        return self._pool_slots(np.repeat(self.batch.slots, np.diff(self.batch.row_starts)), self.batch.positions)

    def _pool_slots(self, rows: NDArray[np.integer], positions: NDArray[np.integer]) -> Int32Array:
        size = self.pool.block_size
        blocks = self.batch.block_tables[rows, positions // size]
        slots: Int32Array = (blocks * size + positions % size).astype(np.int32)
        return slots


def attend_token(q: Values, keys: Values, values: Values, shape: AttentionShape) -> Values:
    """[H·E] from one token's query [H·E] over keys and values, each [n, K, E]. Head h reads KV head h // (H/K)."""
    query = q.reshape(shape.num_kv_heads, -1, shape.head_width)
    scores = query @ keys.transpose(1, 2, 0) * shape.scale
    if shape.soft_cap is not None:
        scores = shape.soft_cap * np.tanh(scores / shape.soft_cap)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended: Values = (weights @ values.transpose(1, 0, 2)).ravel()
    return attended


def activate(gate: Values, activation: Activation) -> Values:
    """The gate's non-linearity."""
    if activation is Activation.SILU:
        # exp overflows to infinity for very negative gates, where the quotient is rightly zero.
        with np.errstate(over="ignore"):
            activated: Values = gate / (1.0 + np.exp(-gate))
    else:
        activated = 0.5 * gate * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (gate + 0.044715 * gate**3)))
    return activated


def _as_stored(x: Values, kv_format: KvFormat) -> Float32Array:
    """[T, KV heads, head width] rounded to the format (ties to even), as float32."""
    rounded = x.astype(np.float32)
    if kv_format is KvFormat.FLOAT32:
        return rounded
    if kv_format is KvFormat.INT8:
        largest = np.maximum(np.abs(rounded).max(axis=-1, keepdims=True), np.float32(1e-30))
        steps: Float32Array = np.rint(rounded * (np.float32(127) / largest)) * (largest / np.float32(127))
        return steps
    bits = np.ascontiguousarray(rounded).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32)
