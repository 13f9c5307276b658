"""Tiny random checkpoints made with transformers, the same as GGUF, and our logits of one.

Weights are drawn so that attention is far from uniform and every switch moves the logits: with the libraries' own
initialization (0.02) a wrong rope would hide in the tolerance.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers

from paceline.models.checkpoint import Checkpoint
from paceline.models.families import config_name, gguf_name
from paceline.models.spec import FrequencyDivisors, LinearScaling, ModelSpec, YarnScaling
from paceline.models.transformer import load_model
from paceline.ops.protocol import Backend, Batch, Float32Array, KvFormat, KvLayout, Session, SessionShape

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}
BLOCK_SIZE = 16


def make_model(model_type: str, **switches: Any) -> Any:
    """A transformers model in float32 with random weights, the same every time."""
    config = transformers.AutoConfig.for_model(model_type, **{**SIZES, **switches})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 2:
                parameter.copy_(1.5 * noise / parameter.shape[1] ** 0.5)
            else:
                parameter.copy_((1.0 if name.endswith("norm.weight") else 0.0) + 0.3 * noise)
    return model


def save_model(model: Any, path: Path, **options: Any) -> Path:
    model.save_pretrained(path, **options)
    return path


def tokens_of(num_tokens: int, vocab_size: int = SIZES["vocab_size"]) -> list[int]:
    return np.random.default_rng(3).integers(0, vocab_size, num_tokens).tolist()


def expected_logits(model: Any, tokens: list[int]) -> Float32Array:
    with torch.no_grad():
        logits: Float32Array = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    return logits


def make_session(
    checkpoint: Checkpoint, backend: Backend, num_tokens: int, kv_format: KvFormat = KvFormat.FLOAT32
) -> Session:
    spec = checkpoint.spec
    num_blocks = -(-num_tokens // BLOCK_SIZE)
    kv = KvLayout(spec.num_layers, num_blocks, BLOCK_SIZE, spec.num_kv_heads, spec.head_width, kv_format)
    model = load_model(checkpoint, backend, min(num_tokens, spec.max_context))
    return backend.session(model, SessionShape(max_tokens=num_tokens, max_rows=1, kv=kv))


def our_logits(
    checkpoint: Checkpoint, backend: Backend, tokens: list[int], chunk_tokens: int | None = None
) -> Float32Array:
    """Logits of every token [T, V], computed in chunks; blocks are handed out last first."""
    session = make_session(checkpoint, backend, len(tokens))
    table = np.arange(-(-len(tokens) // BLOCK_SIZE), dtype=np.int32)[None, ::-1].copy()
    chunk_tokens = chunk_tokens or len(tokens)
    parts = []
    for start in range(0, len(tokens), chunk_tokens):
        chunk = np.array(tokens[start : start + chunk_tokens], np.int32)
        positions = np.arange(start, start + len(chunk), dtype=np.int32)
        row_starts, slots = np.array([0, len(chunk)], np.int32), np.zeros(1, np.int32)
        session.forward(Batch(chunk, positions, row_starts, slots, table))
        parts.append(session.logits(np.arange(len(chunk), dtype=np.int32)))
    return np.concatenate(parts)


def relative_error(logits: Float32Array, expected: Float32Array) -> float:
    return float(np.abs(logits - expected).max() / np.abs(expected).max())


def write_gguf(model: Any, spec: ModelSpec, path: Path, **metadata: Any) -> Path:
    """The model as an F32 GGUF of architecture llama, query and key rows in pairs as converters leave them."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(spec.num_layers)
    writer.add_context_length(spec.max_context)
    writer.add_embedding_length(spec.width)
    writer.add_feed_forward_length(spec.ff_width)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_width)
    writer.add_value_length(spec.head_width)
    writer.add_layer_norm_rms_eps(spec.norm_epsilon)
    writer.add_rope_dimension_count(spec.rope.rotated_width)
    writer.add_rope_freq_base(spec.rope.theta)
    writer.add_vocab_size(spec.vocab_size)
    writer.add_token_list([f"t{index}" for index in range(spec.vocab_size)])
    writer.add_token_scores([0.0] * spec.vocab_size)
    writer.add_token_types([1] * spec.vocab_size)
    if spec.windows[0] is not None:
        writer.add_sliding_window(spec.windows[0])
    _write_scaling(writer, spec)
    for key, value in metadata.items():
        writer.add_uint32(f"general.{key}", value)
    state = model.state_dict()
    for name in spec.tensor_shapes():
        values = state[config_name(name)].numpy()
        heads = spec.num_heads if ".query." in name else spec.num_kv_heads
        if ".query." in name or ".key." in name:
            values = _pairs_from_halves(values, heads)
        writer.add_tensor(gguf_name(name), np.ascontiguousarray(values))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_scaling(writer: Any, spec: ModelSpec) -> None:
    match spec.rope.scaling:
        case LinearScaling(factor):
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(factor)
        case YarnScaling(factor, original_context):
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(factor)
            writer.add_rope_scaling_orig_ctx_len(original_context)
        case FrequencyDivisors(divisors):
            writer.add_tensor("rope_freqs.weight", np.array(divisors, np.float32))


def _pairs_from_halves(values: Any, num_heads: int) -> Any:
    halves = values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
