"""The seam between a model's definition and the machine: what a model is written in, and what runs it.

A model is a Python function over `Ops`. A backend either evaluates the calls (reference) or records them once
and replays them natively (cpu). Tensors, weights and KV are opaque: the backend packs and quantizes as it likes.
Shapes: T tokens in the step, N rows that need logits, D model width, H query heads, K key/value heads, E head width,
F feed-forward width, V vocabulary, R rows (sequences) in the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]

Tensor = Any
Weight = Any


class TensorKind(StrEnum):
    """How a checkpoint stores a tensor's elements. Names as in the GGUF specification."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q8_0 = "Q8_0"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A tensor as it lies in its file: `data` is uint8 [num_rows, bytes of one row], usually a view of a memory map.

    `columns` counts elements of a row (the depth a linear reduces over). A vector has one row.
    """

    name: str
    kind: TensorKind
    num_rows: int
    columns: int
    data: NDArray[np.uint8]


class Activation(StrEnum):
    """The gate's non-linearity."""

    SILU = "silu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """One layer's attention. `window`: a query at position p sees keys (p - window, p]; None sees [0, p].

    `soft_cap` c replaces each scaled score s by c * tanh(s / c) (Gemma 2); None leaves it.
    """

    num_heads: int
    num_kv_heads: int
    head_width: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None


class KvFormat(StrEnum):
    """How keys and values are stored. `int8` has a float32 scale for each token and head."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"

    def vector_bytes(self, head_width: int) -> int:
        """Of one token's key, or value, of one head: scale included."""
        match self:
            case KvFormat.FLOAT32:
                return 4 * head_width
            case KvFormat.BFLOAT16:
                return 2 * head_width
            case KvFormat.INT8:
                return head_width + 4


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The pool every layer's keys and values live in: block b of layer l holds `block_size` tokens of all KV heads."""

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_width: int
    kv_format: KvFormat


@dataclass(frozen=True, slots=True)
class RotaryTable:
    """cos and sin: float32 [max positions, rotated width / 2], scaling factors included; pairs are (i, i + half)."""

    cos: Float32Array
    sin: Float32Array


class Ops(Protocol):
    """The operations of a transformer. All activations are float32 [T, width] unless said otherwise."""

    def embed(self, table: Weight) -> Tensor:
        """Rows of `table` [V, D] for the step's tokens: [T, D]."""
        ...

    def norm(self, x: Tensor, weight: Weight, epsilon: float) -> Tensor:
        """Root-mean-square norm over the last axis, times `weight` [D] (Zhang & Sennrich 2019)."""
        ...

    def add_norm(self, x: Tensor, residual: Tensor, weight: Weight, epsilon: float) -> tuple[Tensor, Tensor]:
        """(norm(x + residual), x + residual); one pass over memory."""
        ...

    def linear(self, x: Tensor, weight: Weight, bias: Weight | None = None, precise: bool = False) -> Tensor:
        """x @ weight.T + bias: [T, rows of weight].

        `precise`: a backend that quantizes activations keeps about 15 bits of them instead of 8, at twice the
        arithmetic. For the output projection, whose rounding decides between nearly equal tokens.
        """
        ...

    def rotary_store(self, qkv: Tensor, layer_index: int, shape: AttentionShape) -> Tensor:
        """Split [T, (H + 2K)·E] into q, k, v; rotate q and k at the step's positions; store k and v in the KV of the
        layer; return q [T, H·E].
        """
        ...

    def attend(self, q: Tensor, layer_index: int, shape: AttentionShape) -> Tensor:
        """Causal attention of each token over its row's stored keys and values, this step's included: [T, H·E]."""
        ...

    def gated(self, gate_up: Tensor, activation: Activation) -> Tensor:
        """activation(gate) * up, with [gate | up] of width 2F: [T, F]."""
        ...

    def take_rows(self, x: Tensor) -> Tensor:
        """The rows of x [T, D] that need logits: [N, D]. Everything after it runs on N rows."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's input. Row i of the step covers tokens [row_starts[i], row_starts[i+1]) and is executor slot
    `slots[i]`.

    tokens, positions: int32 [T]. row_starts: int32 [R + 1]. slots: int32 [R].
    block_tables: int32 [max rows, max blocks a row], indexed by slot; entries past a row's need are not read.
    """

    tokens: Int32Array
    positions: Int32Array
    row_starts: Int32Array
    slots: Int32Array
    block_tables: Int32Array


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """N draws (or scorings) from the hidden states of the last forward. All arrays have N entries unless said.

    token_rows: int32, index into the step's tokens. targets: int32, -1 draws; otherwise the token whose logprob is
    wanted. slots, num_known, num_prompt: int32; histories[slot, :num_known] are the tokens before the draw, the first
    num_prompt of them the prompt. num_known is also the position of the drawn token: draws depend on (seed, num_known).
    temperature (0: greedy), top_p (1: off), min_p (0: off), repetition (1: off), presence, frequency (0: off): float32.
    top_k: int32, 0 off. seeds: uint64. num_top: int32, alternatives to report.
    bias_starts: int32 [N + 1] into bias_ids (int32) and bias_values (float32, -inf forbids).
    mask_rows: int32, which row of `masks` says what a draw may take, -1 for anything; it comes before bias.
    masks: uint32 [M, ceil(V / 32)]; bit t of word w allows token 32w + t.
    histories: int32 [max rows, max context].
    """

    token_rows: Int32Array
    targets: Int32Array
    slots: Int32Array
    num_known: Int32Array
    num_prompt: Int32Array
    temperature: Float32Array
    top_k: Int32Array
    top_p: Float32Array
    min_p: Float32Array
    repetition: Float32Array
    presence: Float32Array
    frequency: Float32Array
    seeds: NDArray[np.uint64]
    num_top: Int32Array
    bias_starts: Int32Array
    bias_ids: Int32Array
    bias_values: Float32Array
    mask_rows: Int32Array
    masks: NDArray[np.uint32]
    histories: Int32Array


@dataclass(frozen=True, slots=True)
class SampleResult:
    """tokens int32 [N], logprobs float32 [N] (log-softmax of the raw logits at the token), top_ids int32 and
    top_logprobs float32 [N, max num_top], best first, -1 and -inf where a row asked for fewer."""

    tokens: Int32Array
    logprobs: Float32Array
    top_ids: Int32Array
    top_logprobs: Float32Array


class Session(Protocol):
    """A model made ready to run on a backend, with its KV pool."""

    def copy_blocks(self, copies: Int32Array) -> None:
        """Rows (source, target, num_tokens) of int32 [C, 3]: copy the first slots of a block, all layers, in order."""
        ...

    def forward(self, batch: Batch) -> None:
        """Run the layers over the step's tokens; KV is written; the hidden states stay for the calls below."""
        ...

    def hidden(self, token_rows: Int32Array) -> Float32Array:
        """Hidden states after the final norm [N, D] of tokens of the last forward: a copy."""
        ...

    def logits(self, token_rows: Int32Array) -> Float32Array:
        """Logits [N, V] of tokens of the last forward."""
        ...

    def sample(self, batch: SampleBatch) -> SampleResult:
        """Draw or score; the head runs over tiles of rows, so memory is bounded whatever N."""
        ...


@dataclass(frozen=True, slots=True)
class SessionShape:
    """Sizes a session is built for: T and R never exceed these."""

    max_tokens: int
    max_rows: int
    kv: KvLayout


class Model(Protocol):
    """A model definition: weights held by the caller's backend, structure as code over `Ops`."""

    vocab_size: int
    rotary: RotaryTable

    def hidden(self, ops: Ops) -> Tensor:
        """The layers and the final norm: [T, D]."""
        ...

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """The output projection of the rows taken: [N, V]."""
        ...


class Backend(Protocol):
    """Packs weights and makes sessions."""

    @property
    def isa(self) -> str:
        """The instruction set of its kernels, as the start-up summary names it."""
        ...

    def weight(self, parts: Sequence[HostTensor]) -> Weight:
        """One linear weight (or embedding table) from tensors stacked by rows; kinds may differ only if the backend
        can hold both exactly.
        """
        ...

    def vector(self, part: HostTensor) -> Weight:
        """A float32 vector (norm weight, bias)."""
        ...

    def session(self, model: Model, shape: SessionShape) -> Session:
        """Record (or bind) the model's two functions and allocate its KV pool."""
        ...
