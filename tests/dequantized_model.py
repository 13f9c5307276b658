"""The independent reference for numbers: transformers, float32, on the weights that the gguf package dequantizes."""

from pathlib import Path
from typing import Any

import gguf
import torch
import transformers

from paceline.models.families import config_name, gguf_name
from paceline.models.spec import ModelSpec


def transformers_model(path: Path, spec: ModelSpec) -> Any:
    """Float32 transformers weights from the same file, read and dequantized by the gguf package."""
    config = transformers.LlamaConfig(
        vocab_size=spec.vocab_size,
        hidden_size=spec.width,
        intermediate_size=spec.ff_width,
        num_hidden_layers=spec.num_layers,
        num_attention_heads=spec.num_heads,
        num_key_value_heads=spec.num_kv_heads,
        max_position_embeddings=spec.max_context,
        rms_norm_eps=spec.norm_epsilon,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": spec.rope.theta},
    )
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    state = {}
    for name in spec.tensor_shapes():
        tensor = tensors[gguf_name(name)]
        values = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(tensor.shape[::-1])
        if ".query." in name or ".key." in name:
            num_heads = spec.num_heads if ".query." in name else spec.num_kv_heads
            values = values.reshape(num_heads, -1, 2, spec.width).swapaxes(1, 2).reshape(values.shape)
        state[config_name(name)] = torch.tensor(values)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    return model.eval()
