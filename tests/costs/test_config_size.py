"""Sizes counted from published configurations agree with the built-in table, which has them from the weights."""

import pytest

from paceline.costs.config_size import size_from_config
from paceline.costs.known_models import find_model
from paceline.errors import ConfigError
from published_configs import LLAMA_3_8B

MIXTRAL = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "use_sliding_window": False,
    "sliding_window": 4096,
}
GEMMA_3_270M = {
    "model_type": "gemma3_text",
    "hidden_size": 640,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "intermediate_size": 2048,
    "vocab_size": 262144,
    "max_position_embeddings": 32768,
    "sliding_window": 512,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "head_dim": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
}


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA_3_8B, "llama-3-8b"),
        (MIXTRAL, "mixtral-8x7b"),
        (QWEN3_MOE, "qwen3-30b-a3b"),
        (GEMMA_3_270M, "gemma-3-270m"),
        (DEEPSEEK_V3, "deepseek-v3"),
        ({"text_config": GEMMA_3_270M, "model_type": "gemma3"}, "gemma-3-270m"),
    ],
)
def test_a_config_has_the_sizes_of_the_weights(config: dict[str, object], name: str) -> None:
    counted, known = size_from_config(config, name), find_model(name)
    assert counted.num_params == pytest.approx(known.num_params, rel=0.002)
    assert counted.active_params == pytest.approx(known.active_params, rel=0.01)
    assert counted.kv_numbers_per_token == known.kv_numbers_per_token
    assert counted.windows == known.windows
    assert counted.experts == known.experts
    assert counted.max_context == known.max_context


def test_a_missing_or_wrong_key_is_named() -> None:
    with pytest.raises(ConfigError, match="here: num_hidden_layers is missing"):
        size_from_config({}, "here")
    with pytest.raises(ConfigError, match="here: hidden_size must be a whole number from 0, got 'wide'"):
        size_from_config({**LLAMA_3_8B, "hidden_size": "wide"}, "here")
    with pytest.raises(ConfigError, match="9 of 8 experts"):
        size_from_config({**MIXTRAL, "num_experts_per_tok": 9}, "here")
