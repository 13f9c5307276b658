"""From config.json to a spec.

Owns the meaning of Hugging Face configuration keys, old spellings (`rope_scaling`, `type`) and new (`rope_parameters`,
`rope_type`). A key that would change the answer and isn't understood is refused by name.
"""

import math
from collections.abc import Mapping

from paceline.errors import CheckpointError
from paceline.models.families import CONFIG_FAMILIES
from paceline.models.fields import Fields
from paceline.models.spec import LinearScaling, Llama3Scaling, ModelSpec, RopeScaling, RopeSpec, YarnScaling
from paceline.ops.protocol import Activation

ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_new": Activation.GELU_TANH,
    "gelu_fast": Activation.GELU_TANH,
}
_ROPE_KEYS = {"rope_type", "type", "rope_theta", "partial_rotary_factor", "finetuned"}
_YARN_KEYS = {"attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}
_SCALING_KEYS = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor"},
    "llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
    "yarn": {"factor", "original_max_position_embeddings"} | _YARN_KEYS,
}


def spec_from_config(values: Mapping[str, object], where: str) -> ModelSpec:
    """Raises CheckpointError for an unknown family, or a switch with a value we don't implement."""
    model_type = values.get("model_type")
    family = CONFIG_FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        known = ", ".join(CONFIG_FAMILIES)
        raise CheckpointError(f"{where}: model_type {model_type!r} is not a family we know ({known})")
    config = Fields({**family.defaults, **values}, where)
    config.require_neutral(family.neutral)
    num_heads = config.integer("num_attention_heads")
    width = config.integer("hidden_size")
    head_width = config.integer("head_dim", width // max(num_heads, 1))
    scaling, max_context = _scaling_and_context(config)
    attention_bias = config.boolean("attention_bias", False)
    num_layers = config.integer("num_hidden_layers")
    return ModelSpec(
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        num_kv_heads=config.integer("num_key_value_heads", num_heads),
        head_width=head_width,
        ff_width=config.integer("intermediate_size"),
        vocab_size=config.integer("vocab_size"),
        max_context=max_context,
        norm_epsilon=config.number("rms_norm_eps", 1e-6),
        rope=RopeSpec(_theta(config), head_width, scaling),
        windows=_windows(config, num_layers),
        activation=_activation(config),
        tied_embeddings=config.boolean("tie_word_embeddings", False),
        qkv_bias=attention_bias,
        attention_output_bias=attention_bias,
        mlp_bias=config.boolean("mlp_bias", False),
    )


def _activation(config: Fields) -> Activation:
    name = config.text("hidden_act", "silu")
    if name not in ACTIVATIONS:
        config.fail("hidden_act", f"one of {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _windows(config: Fields, num_layers: int) -> tuple[int | None, ...]:
    """A window for each layer that slides. Without `layer_types` every layer does, if there is a window at all."""
    window = None if config.get("sliding_window") is None else config.integer("sliding_window")
    num_windows = min(max(num_layers, 0), 1 << 12)  # the spec refuses more, by name
    layer_types = config.get("layer_types")
    if layer_types is None:
        return (window,) * num_windows
    if not isinstance(layer_types, list) or len(layer_types) != num_layers:
        config.fail("layer_types", f"a list of {num_layers} entries, one a layer")
    kinds = {"full_attention": None, "sliding_attention": window}
    if any(kind not in kinds for kind in layer_types) or ("sliding_attention" in layer_types and window is None):
        config.fail("layer_types", "full_attention, or sliding_attention beside a sliding_window")
    return tuple(kinds[kind] for kind in layer_types)


def _rope_fields(config: Fields) -> Fields:
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        config.fail("rope_parameters", "an object")
    return Fields(rope, f"{config.where}: rope_parameters")


def _theta(config: Fields) -> float:
    return _rope_fields(config).number("rope_theta", config.number("rope_theta", 10_000.0))


def _scaling_and_context(config: Fields) -> tuple[RopeScaling | None, int]:
    """The scaling, and how far the model reaches with it.

    As vLLM reads it: `linear` stretches the stated length by its factor, `llama3` states the stretched one, `yarn` does
    either, so that its longer reading holds.
    `dynamic` changes nothing up to the stated length; past it, it would re-rotate keys already cached as a sequence
    grows, so the stated length is where such a model ends.
    """
    rope = _rope_fields(config)
    kind = rope.text("rope_type", rope.text("type", "default"))
    if kind not in _SCALING_KEYS:
        raise CheckpointError(f"{rope.where}: rope_type {kind!r} is not known ({', '.join(_SCALING_KEYS)} are)")
    for key in rope.values.keys() - _ROPE_KEYS - _SCALING_KEYS[kind]:
        if rope.get(key) is not None:
            raise CheckpointError(f"{rope.where}: {key} is not known for rope_type {kind!r}")
    rope.require_neutral({"partial_rotary_factor": (1.0,)})
    stated = config.integer("max_position_embeddings")
    original = config.integer(
        "original_max_position_embeddings", rope.integer("original_max_position_embeddings", stated)
    )
    match kind:
        case "linear":
            factor = rope.number("factor")
            return LinearScaling(factor), _stretched(stated, factor)
        case "llama3":
            low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
            if not 0.0 < low < high:
                rope.fail("high_freq_factor", f"above low_freq_factor {low}")
            return Llama3Scaling(rope.number("factor"), low, high, original), stated
        case "yarn":
            factor = rope.number("factor", stated / max(original, 1))
            return _yarn(rope, factor, original), max(stated, _stretched(original, factor))
        case _:
            return None, stated


def _stretched(length: int, factor: float) -> int:
    return int(length * factor) if math.isfinite(factor) else length


def _yarn(rope: Fields, factor: float, original: int) -> YarnScaling:
    default = _magnitude(factor)
    mscale, mscale_all = rope.get("mscale"), rope.get("mscale_all_dim")
    if mscale and mscale_all:
        default = _magnitude(factor, rope.number("mscale")) / _magnitude(factor, rope.number("mscale_all_dim"))
    return YarnScaling(
        factor=factor,
        original_context=original,
        attention_factor=rope.number("attention_factor", default),
        beta_fast=rope.number("beta_fast", 32.0),
        beta_slow=rope.number("beta_slow", 1.0),
        rounds_ramp=rope.boolean("truncate", True),
    )


def _magnitude(factor: float, slope: float = 1.0) -> float:
    """Equation 22 of the YaRN paper, with DeepSeek's slope."""
    return 1.0 if factor <= 1.0 else 0.1 * slope * math.log(factor) + 1.0
