"""The one transformer: every model we serve is this function of a spec and a checkpoint's tensors.

Owns the structure (pre-norm blocks, grouped-query attention, gated feed-forward) as code over `Ops`, and which tensors
are stacked into one weight. Never knows the machine. Shape letters as in `ops/protocol.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline.models.checkpoint import Checkpoint
from paceline.models.rope import rotary_table
from paceline.models.spec import ModelSpec
from paceline.ops.dequantize import dequantize
from paceline.ops.protocol import AttentionShape, Backend, HostTensor, Ops, RotaryTable, Tensor, TensorKind, Weight


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight [rows, columns] and its bias [rows], if any."""

    weight: Weight
    bias: Weight | None


@dataclass(frozen=True, slots=True)
class Layer:
    """One block. `qkv` stacks query, key and value rows, `gate_up` gate and up rows: one pass over x each."""

    attention_norm: Weight
    qkv: Linear
    attention: AttentionShape
    attention_output: Linear
    mlp_norm: Weight
    gate_up: Linear
    down: Linear


class Transformer:
    """An `ops.protocol.Model`. `rotary` reaches as far as the positions it was loaded for."""

    def __init__(self, spec: ModelSpec, rotary: RotaryTable, weights: "Weights") -> None:
        self.spec = spec
        self.vocab_size = spec.vocab_size
        self.rotary = rotary
        self.weights = weights

    def hidden(self, ops: Ops) -> Tensor:
        """The layers and the final norm: [T, D]. Each norm is fused with the residual sum before it."""
        epsilon, weights = self.spec.norm_epsilon, self.weights
        norms_after = [layer.attention_norm for layer in weights.layers[1:]] + [weights.final_norm]
        residual = ops.embed(weights.embedding)
        x = ops.norm(residual, weights.layers[0].attention_norm, epsilon)
        for layer_index, (layer, norm_after) in enumerate(zip(weights.layers, norms_after, strict=True)):
            qkv = ops.linear(x, layer.qkv.weight, layer.qkv.bias)
            q = ops.rotary_store(qkv, layer_index, layer.attention)
            attended = ops.attend(q, layer_index, layer.attention)
            x = ops.linear(attended, layer.attention_output.weight, layer.attention_output.bias)
            x, residual = ops.add_norm(x, residual, layer.mlp_norm, epsilon)
            gate_up = ops.linear(x, layer.gate_up.weight, layer.gate_up.bias)
            x = ops.linear(ops.gated(gate_up, self.spec.activation), layer.down.weight, layer.down.bias)
            x, residual = ops.add_norm(x, residual, norm_after, epsilon)
        return x

    def logits(self, ops: Ops, hidden: Tensor) -> Tensor:
        """The output projection of the rows taken: [N, V]."""
        return ops.linear(ops.take_rows(hidden), self.weights.head, precise=True)


@dataclass(frozen=True, slots=True)
class Weights:
    """Everything a backend holds for a model. With tied embeddings `head` is `embedding`, the same object."""

    embedding: Weight
    layers: tuple[Layer, ...]
    final_norm: Weight
    head: Weight


def load_model(checkpoint: Checkpoint, backend: Backend, num_positions: int | None = None) -> Transformer:
    """Hand every tensor to the backend, layer by layer. `num_positions`: how far it will be used; None: max_context."""
    spec = checkpoint.spec
    num_positions = spec.max_context if num_positions is None else num_positions
    assert num_positions <= spec.max_context, f"{num_positions} positions, the model has {spec.max_context}"
    loader = _Loader(checkpoint, backend)
    embedding = loader.linear("embedding").weight
    weights = Weights(
        embedding=embedding,
        layers=tuple(loader.layer(layer_index) for layer_index in range(spec.num_layers)),
        final_norm=loader.vector("final_norm.weight"),
        head=embedding if spec.tied_embeddings else loader.linear("head").weight,
    )
    return Transformer(spec, rotary_table(spec.rope, num_positions), weights)


class _Loader:
    """Moves tensors from a checkpoint into a backend."""

    def __init__(self, checkpoint: Checkpoint, backend: Backend) -> None:
        self.checkpoint = checkpoint
        self.backend = backend

    def layer(self, layer_index: int) -> Layer:
        spec, prefix = self.checkpoint.spec, f"layers.{layer_index}."
        return Layer(
            attention_norm=self.vector(f"{prefix}attention_norm.weight"),
            qkv=self.linear(f"{prefix}query", f"{prefix}key", f"{prefix}value", has_bias=spec.qkv_bias),
            attention=spec.attention(layer_index),
            attention_output=self.linear(f"{prefix}attention_output", has_bias=spec.attention_output_bias),
            mlp_norm=self.vector(f"{prefix}mlp_norm.weight"),
            gate_up=self.linear(f"{prefix}gate", f"{prefix}up", has_bias=spec.mlp_bias),
            down=self.linear(f"{prefix}down", has_bias=spec.mlp_bias),
        )

    def linear(self, *names: str, has_bias: bool = False) -> Linear:
        """The named tensors stacked by rows."""
        tensor = self.checkpoint.tensor
        weight = self.backend.weight([tensor(f"{name}.weight") for name in names])
        bias = self.backend.vector(_joined([tensor(f"{name}.bias") for name in names])) if has_bias else None
        return Linear(weight, bias)

    def vector(self, name: str) -> Weight:
        return self.backend.vector(self.checkpoint.tensor(name))


def _joined(vectors: Sequence[HostTensor]) -> HostTensor:
    """Vectors end to end, as one float32 vector (no kind a bias is stored in holds more)."""
    values = np.concatenate([dequantize(vector)[0] for vector in vectors]).astype(np.float32)
    name = "+".join(vector.name for vector in vectors)
    return HostTensor(name, TensorKind.F32, 1, len(values), values.view(np.uint8)[None, :])
