"""The model families we serve, as tables: what each one's tensors are called and what its config leaves unsaid.

A family is data. One that needs a new structure needs a new switch in `spec.py` first; adding a family of known
structure is an entry here. Canonical names are those of `ModelSpec.tensor_shapes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

GGUF_ARCHITECTURES = ("llama",)


@dataclass(frozen=True, slots=True)
class ConfigFamily:
    """A `model_type` of config.json. `defaults` are what its absent keys mean; `neutral` keys hold these values or
    the checkpoint is refused, because the family's definition has no such switch."""

    defaults: Mapping[str, object]
    neutral: Mapping[str, tuple[object, ...]] = field(default_factory=dict)


# Switches of other families which some checkpoints carry along; anything but these values would change the answer.
_NEUTRAL_EVERYWHERE: dict[str, tuple[object, ...]] = {
    "quantization_config": (),
    "partial_rotary_factor": (1.0,),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "num_local_experts": (0, 1),
    "use_qk_norm": (False,),
    "no_rope_layers": ([],),
    "embedding_multiplier": (1.0,),
    "residual_multiplier": (1.0,),
    "attention_multiplier": (),
    "logits_scaling": (1.0,),
}
_NO_BIAS: dict[str, tuple[object, ...]] = {"attention_bias": (False,), "mlp_bias": (False,)}
_MISTRAL_DEFAULTS = {"num_key_value_heads": 8, "max_position_embeddings": 131_072, "sliding_window": 4_096}

CONFIG_FAMILIES: dict[str, ConfigFamily] = {
    "llama": ConfigFamily(
        defaults={"max_position_embeddings": 2_048},
        neutral=_NEUTRAL_EVERYWHERE | {"sliding_window": (), "use_sliding_window": (False,)},
    ),
    "mistral": ConfigFamily(defaults=_MISTRAL_DEFAULTS, neutral=_NEUTRAL_EVERYWHERE | _NO_BIAS),
    "ministral": ConfigFamily(defaults=_MISTRAL_DEFAULTS, neutral=_NEUTRAL_EVERYWHERE | _NO_BIAS),
}

_CONFIG_NAMES = {
    "embedding": "model.embed_tokens",
    "final_norm": "model.norm",
    "head": "lm_head",
    "attention_norm": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention_output": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_GGUF_NAMES = {
    "embedding": "token_embd",
    "final_norm": "output_norm",
    "head": "output",
    "attention_norm": "attn_norm",
    "query": "attn_q",
    "key": "attn_k",
    "value": "attn_v",
    "attention_output": "attn_output",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def config_name(name: str) -> str:
    """What safetensors files call the tensor of a canonical name."""
    return _translated(name, _CONFIG_NAMES, "model.layers")


def gguf_name(name: str) -> str:
    """What GGUF files call the tensor of a canonical name."""
    return _translated(name, _GGUF_NAMES, "blk")


def _translated(name: str, names: Mapping[str, str], layers: str) -> str:
    *prefix, noun, ending = name.split(".")
    translated = f"{names[noun]}.{ending}"
    return f"{layers}.{prefix[1]}.{translated}" if prefix else translated
