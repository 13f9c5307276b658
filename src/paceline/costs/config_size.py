"""Sizes from a published config.json, of any family that states the usual keys; nothing is downloaded or loaded.

Parameters are counted from the shapes the config implies: attention, gated feed-forward, experts, embeddings. Norms and
biases, some 0.01 % of a model, are left out. The engine's own reading of a config is stricter, since it has to compute
with it; a plan needs only the sizes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.costs.model_size import Experts, ModelSize
from paceline.errors import ConfigError

_EXPERT_COUNT = ("num_local_experts", "num_experts", "n_routed_experts")
_EXPERTS_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token")
_TIED_FAMILIES = ("gemma", "gemma2", "gemma3", "gemma3_text")
_WINDOW_EVERY = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}
MAX_NUMBER = 1 << 40


@dataclass(frozen=True, slots=True)
class _Config:
    values: Mapping[str, object]
    name: str

    def integer(self, *keys: str, default: int | None = None) -> int:
        """The first of the keys that is there."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NUMBER:
                raise ConfigError(f"{self.name}: {key} must be a whole number from 0, got {str(value)[:60]!r}")
            return value
        if default is None:
            raise ConfigError(f"{self.name}: {keys[0]} is missing")
        return default

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return value if isinstance(value, str) else ""


def size_from_config(values: Mapping[str, object], name: str) -> ModelSize:
    """Raises ConfigError naming the key that is missing or wrong. Of a model that also sees, the text part."""
    config = _text_part(values, name)
    num_layers, width = config.integer("num_hidden_layers"), config.integer("hidden_size")
    num_heads = config.integer("num_attention_heads")
    head_width = config.integer("head_dim", default=width // max(num_heads, 1))
    num_kv_heads = config.integer("num_key_value_heads", default=num_heads)
    experts, dense_ff, expert_ff = _feed_forward(config)
    attention = _attention(config, width, (num_heads, num_kv_heads, head_width))
    fixed = embedding_params(values, name) + num_layers * attention + dense_ff
    chosen_ff = 0 if experts is None else expert_ff * experts.num_chosen
    all_ff = 0 if experts is None else expert_ff * experts.num_experts
    return ModelSize(
        name=name,
        num_params=fixed + all_ff,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_width=head_width,
        vocab_size=config.integer("vocab_size"),
        max_context=config.integer("max_position_embeddings", default=8_192),
        num_active_params=None if experts is None else fixed + chosen_ff,
        experts=experts,
        windows=_windows(config, num_layers),
        latent_width=config.integer("kv_lora_rank", default=0) + config.integer("qk_rope_head_dim", default=0)
        if config.values.get("kv_lora_rank")
        else None,
    )


def embedding_params(values: Mapping[str, object], name: str) -> int:
    """Parameters of the embedding and the head, which may be one."""
    config = _text_part(values, name)
    return config.integer("vocab_size") * config.integer("hidden_size") * (1 if _is_tied(config) else 2)


def _text_part(values: Mapping[str, object], name: str) -> _Config:
    text = values.get("text_config")
    return _Config({**values, **text} if isinstance(text, Mapping) else values, name)


def _feed_forward(config: _Config) -> tuple[Experts | None, int, int]:
    """(experts, parameters outside of them, parameters of one expert in all layers); gated: three matrices."""
    width, num_layers = config.integer("hidden_size"), config.integer("num_hidden_layers")
    matrix = 3 * width
    num_experts = config.integer(*_EXPERT_COUNT, default=0)
    if num_experts <= 1:
        return None, num_layers * matrix * config.integer("intermediate_size"), 0
    num_dense_layers = config.integer("first_k_dense_replace", default=0)
    expert_width = config.integer("moe_intermediate_size", "intermediate_size")
    shared_width = config.integer("n_shared_experts", default=0) * expert_width
    shared_width += config.integer("shared_expert_intermediate_size", default=0)
    num_mixed = num_layers - num_dense_layers
    outside = num_mixed * (matrix * shared_width + width * num_experts)
    outside += num_dense_layers * matrix * config.integer("intermediate_size")
    chosen = config.integer(*_EXPERTS_CHOSEN)
    return Experts(num_experts, chosen), outside, num_mixed * matrix * expert_width


def _attention(config: _Config, width: int, heads: tuple[int, int, int]) -> int:
    """Parameters of one layer's attention; with a latent, its down and up projections."""
    num_heads, num_kv_heads, head_width = heads
    latent = config.integer("kv_lora_rank", default=0)
    if not latent:
        return width * head_width * (2 * num_heads + 2 * num_kv_heads)
    rotated, plain = config.integer("qk_rope_head_dim"), config.integer("qk_nope_head_dim")
    value, query_latent = config.integer("v_head_dim"), config.integer("q_lora_rank", default=0)
    query_columns = num_heads * (plain + rotated)
    query = query_latent * (width + query_columns) if query_latent else width * query_columns
    return query + width * (latent + rotated) + latent * num_heads * (plain + value) + num_heads * value * width


def _is_tied(config: _Config) -> bool:
    tied = config.values.get("tie_word_embeddings")
    return tied if isinstance(tied, bool) else config.text("model_type") in _TIED_FAMILIES


def _windows(config: _Config, num_layers: int) -> tuple[int | None, ...]:
    window = config.integer("sliding_window", default=0)
    if not window or config.values.get("use_sliding_window") is False:
        return ()
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == num_layers:
        return tuple(window if kind == "sliding_attention" else None for kind in kinds)
    model_type = config.text("model_type")
    if model_type.startswith("qwen"):  # its windows are off unless asked for
        return () if config.values.get("use_sliding_window") is not True else (window,) * num_layers
    full_every = config.integer("sliding_window_pattern", default=_WINDOW_EVERY.get(model_type, 0))
    return tuple(None if full_every and (index + 1) % full_every == 0 else window for index in range(num_layers))
