"""config.json of published models, as far as sizes go."""

LLAMA_3_8B: dict[str, object] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}
MISTRAL_SMALL: dict[str, object] = {
    "model_type": "mistral",
    "hidden_size": 5120,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 32768,
    "vocab_size": 131072,
    "max_position_embeddings": 32768,
    "sliding_window": None,
}
