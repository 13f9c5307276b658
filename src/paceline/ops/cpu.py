"""The CPU backend: models recorded once and replayed by the native kernels.

Owns the Python side of `native/`: it hands tensors, recorded programs and arrays over and gives results back. It
computes nothing. A step is one native call; kernels are those of one instruction set, chosen when the backend is made.
"""

from collections.abc import Sequence

import numpy as np

from paceline.errors import CheckpointError, ConfigError
from paceline.ops import _native
from paceline.ops.protocol import (
    Activation,
    AttentionShape,
    Batch,
    Float32Array,
    HostTensor,
    Int32Array,
    Model,
    SampleBatch,
    SampleResult,
    SessionShape,
)

INSTRUCTION_SETS = ("avx512", "avx2", "portable")


def instruction_sets() -> tuple[str, ...]:
    """Those this processor and build can run, the fastest first."""
    return tuple(isa for isa in INSTRUCTION_SETS if _runs(isa))


def _runs(isa: str) -> bool:
    try:
        _native.make_backend(1, isa)
    except ValueError:
        return False
    return True


class CpuBackend:
    """An `ops.protocol.Backend`. `isa`: one of INSTRUCTION_SETS; None takes the fastest the processor has.

    `per_channel`: weights are requantized to int8 with one scale an output (round to nearest), instead of being held
    exactly as in their file; activations get one scale for 64 positions. Less arithmetic a token, and less exact.

    Raises ConfigError when the instruction set is not available or `num_threads` is below 1.
    """

    def __init__(self, num_threads: int, isa: str | None = None, per_channel: bool = False) -> None:
        try:
            self._native = _native.make_backend(num_threads, isa)
        except ValueError as error:
            raise ConfigError(f"cpu backend: {error}") from error
        self.num_threads = num_threads
        self._per_channel = per_channel

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return self._native.isa

    def weight(self, parts: Sequence[HostTensor]) -> _native.Weight:
        """Packed for the kernels, losslessly unless `per_channel`; `parts` are only read during the call."""
        try:
            return self._native.weight(list(parts), self._per_channel)
        except ValueError as error:
            names = ", ".join(part.name for part in parts)
            raise CheckpointError(f"tensors {names}: {error}") from error

    def vector(self, part: HostTensor) -> _native.Vector:
        """As float32."""
        try:
            return self._native.vector(part)
        except ValueError as error:
            raise CheckpointError(f"tensor {part.name}: {error}") from error

    def session(self, model: Model, shape: SessionShape) -> "CpuSession":
        """Record the model's two functions and allocate the KV pool and all memory of a step."""
        layers = self._native.program()
        layers.set_output(model.hidden(RecordedOps(layers)))
        head = self._native.program()
        head.set_output(model.logits(RecordedOps(head), head.input(layers.output_width)))
        return CpuSession(self._native.session(layers, head, shape, model.rotary))


class RecordedOps:
    """An `ops.protocol.Ops` that records: tensors are numbers of the program."""

    def __init__(self, program: _native.Program) -> None:
        self._program = program

    def embed(self, table: _native.Weight) -> int:
        """Records the rows of the step's tokens."""
        return self._program.embed(table)

    def norm(self, x: int, weight: _native.Vector, epsilon: float) -> int:
        """Records the norm."""
        return self._program.norm(x, weight, epsilon)

    def add_norm(self, x: int, residual: int, weight: _native.Vector, epsilon: float) -> tuple[int, int]:
        """Records the norm of the sum, and the sum."""
        return self._program.add_norm(x, residual, weight, epsilon)

    def linear(self, x: int, weight: _native.Weight, bias: _native.Vector | None = None, precise: bool = False) -> int:
        """Records the quantization of x, where the weight needs it and x has none yet, and the product."""
        return self._program.linear(x, weight, bias, precise)

    def rotary_store(self, qkv: int, layer_index: int, shape: AttentionShape) -> int:
        """Records rotation and store."""
        return self._program.rotary_store(qkv, layer_index, shape)

    def attend(self, q: int, layer_index: int, shape: AttentionShape) -> int:
        """Records the attention."""
        return self._program.attend(q, layer_index, shape)

    def gated(self, gate_up: int, activation: Activation) -> int:
        """Records the gate."""
        return self._program.gated(gate_up, activation)

    def take_rows(self, x: int) -> int:
        """Records the gathering."""
        return self._program.take_rows(x)


class CpuSession:
    """An `ops.protocol.Session`. Not for use from several threads at once."""

    def __init__(self, native: _native.Session) -> None:
        self._native = native

    def copy_blocks(self, copies: Int32Array) -> None:
        """In order: a later copy may read what an earlier one wrote."""
        self._native.copy_blocks(copies)

    def forward(self, batch: Batch) -> None:
        """Run the layers. Raises ValueError, before anything is written, for a batch that would leave its arrays."""
        self._native.forward(batch)

    def hidden(self, token_rows: Int32Array) -> Float32Array:
        """Hidden states [N, D]."""
        hidden = np.empty((len(token_rows), self._native.width), np.float32)
        self._native.hidden(token_rows, hidden)
        return hidden

    def logits(self, token_rows: Int32Array) -> Float32Array:
        """Logits [N, V]."""
        logits = np.empty((len(token_rows), self._native.vocab_size), np.float32)
        self._native.logits(token_rows, logits)
        return logits

    def sample(self, batch: SampleBatch) -> SampleResult:
        """Draw or score; 64 rows of logits exist at a time."""
        num_draws, num_top = len(batch.token_rows), int(batch.num_top.max(initial=0))
        result = SampleResult(
            tokens=np.empty(num_draws, np.int32),
            logprobs=np.empty(num_draws, np.float32),
            top_ids=np.full((num_draws, num_top), -1, np.int32),
            top_logprobs=np.full((num_draws, num_top), -np.inf, np.float32),
        )
        self._native.sample(batch, result)
        return result
