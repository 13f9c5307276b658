"""From a GGUF file's metadata to a spec.

Owns the meaning of `general.*` and `llama.*` keys. Which biases there are and whether embeddings are tied is not
stated in metadata: the presence of a tensor says it.
"""

import math
from collections.abc import Sized

import numpy as np

from paceline.errors import CheckpointError
from paceline.models.families import GGUF_ARCHITECTURES
from paceline.models.fields import Fields
from paceline.models.gguf import GgufFile
from paceline.models.spec import (
    MAX_WIDTH,
    FrequencyDivisors,
    LinearScaling,
    ModelSpec,
    RopeScaling,
    RopeSpec,
    YarnScaling,
)
from paceline.ops.dequantize import dequantize

FREQUENCY_DIVISORS = "rope_freqs.weight"

# Vocabulary arrays: key -> NumPy kind and item size, None for strings. Each has one item a token.
_VOCABULARY_ARRAYS = {
    "tokenizer.ggml.tokens": None,
    "tokenizer.ggml.scores": ("f", 4),
    "tokenizer.ggml.token_type": ("iu", 4),
}


def spec_from_metadata(file: GgufFile) -> ModelSpec:
    """Raises CheckpointError for an unknown architecture, or a switch with a value we don't implement."""
    fields = Fields(file.metadata, str(file.path))
    architecture = fields.text("general.architecture")
    if architecture not in GGUF_ARCHITECTURES:
        known = ", ".join(GGUF_ARCHITECTURES)
        raise CheckpointError(f"{file.path}: architecture {architecture!r} is not a family we know ({known})")
    if fields.integer("split.count", 1) > 1:
        raise CheckpointError(f"{file.path} is one of several split files; merge them first (gguf-split --merge)")
    prefix = f"{architecture}."
    model = Fields({k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)}, fields.where)
    model.require_neutral({"expert_count": (0,), "rope.scaling.yarn_log_multiplier": (0.0,), "rope.scaling.alpha": ()})
    num_heads, width = model.integer("attention.head_count"), model.integer("embedding_length")
    head_width = model.integer("attention.key_length", width // max(num_heads, 1))
    model.require_neutral({"attention.value_length": (head_width,), "rope.dimension_count": (head_width,)})
    num_layers = model.integer("block_count")
    window = model.integer("attention.sliding_window", 0) or None
    return ModelSpec(
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        num_kv_heads=model.integer("attention.head_count_kv", num_heads),
        head_width=head_width,
        ff_width=model.integer("feed_forward_length"),
        vocab_size=_vocab_size(file, model),
        max_context=model.integer("context_length"),
        norm_epsilon=model.number("attention.layer_norm_rms_epsilon"),
        rope=RopeSpec(model.number("rope.freq_base", 10_000.0), head_width, _scaling(file, model)),
        windows=(window,) * min(num_layers, 1 << 12),  # the spec refuses more, by name
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        attention_output_bias="blk.0.attn_output.bias" in file.tensors,
        mlp_bias="blk.0.ffn_up.bias" in file.tensors,
    )


def _vocab_size(file: GgufFile, model: Fields) -> int:
    """Rows of the embedding, which every other count of the vocabulary has to equal."""
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError(f"{file.path}: tensor 'token_embd.weight' is missing")
    rows = embedding.num_rows
    if model.integer("vocab_size", rows) != rows:
        model.fail("vocab_size", f"the {rows} rows of the embedding")
    for key, kind in _VOCABULARY_ARRAYS.items():
        value = file.metadata.get(key)
        if value is None:
            continue
        if kind is None:
            right = isinstance(value, list)
        else:
            right = isinstance(value, np.ndarray) and value.dtype.kind in kind[0] and value.itemsize == kind[1]
        if not right:
            raise CheckpointError(f"{file.path}: {key} is an array of the wrong type")
        if isinstance(value, Sized) and len(value) != rows:
            raise CheckpointError(f"{file.path}: {key} has {len(value)} items for the {rows} rows of the embedding")
    return rows


def _scaling(file: GgufFile, model: Fields) -> RopeScaling | None:
    kind = model.text("rope.scaling.type", "linear")
    factor = model.number("rope.scaling.factor", model.number("rope.scale_linear", 1.0))
    divisors = file.tensors.get(FREQUENCY_DIVISORS)
    if divisors is not None:
        if kind == "yarn" or factor != 1.0:
            model.fail("rope.scaling.type", f"none beside the tensor {FREQUENCY_DIVISORS!r}")
        if divisors.num_rows != 1 or divisors.columns > MAX_WIDTH:
            raise CheckpointError(f"{file.path}: tensor {FREQUENCY_DIVISORS!r} is not a vector of a pair's divisors")
        return FrequencyDivisors(tuple(dequantize(divisors).ravel().tolist()))
    match kind:
        case "none":
            return None
        case "linear":
            return LinearScaling(factor) if factor != 1.0 else None
        case "yarn":
            original = model.integer("rope.scaling.original_context_length", model.integer("context_length"))
            magnitude = 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0
            return YarnScaling(
                factor=factor,
                original_context=original,
                attention_factor=magnitude * model.number("rope.scaling.attn_factor", 1.0),
                beta_fast=model.number("rope.scaling.yarn_beta_fast", 32.0),
                beta_slow=model.number("rope.scaling.yarn_beta_slow", 1.0),
            )
        case _:
            model.fail("rope.scaling.type", "none, linear or yarn")
