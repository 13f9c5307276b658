"""Sizes of a model from what its GGUF file states of itself."""

from pathlib import Path

import numpy as np

from paceline.costs.formats import weight_format
from paceline.models.gguf import GgufFile
from paceline.ops.protocol import HostTensor
from paceline.sim.named_model import size_from_gguf


def test_a_gguf_states_its_own_sizes() -> None:
    metadata = {
        "general.architecture": "llama",
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.block_count": 3,
        "llama.embedding_length": 64,
        "llama.context_length": 512,
        "llama.expert_count": 4,
        "llama.expert_used_count": 1,
    }
    shapes = {"token_embd.weight": (100, 64), "blk.0.ffn_up_exps.weight": (4 * 32, 64)}
    tensors = {
        name: HostTensor(name, "Q4_0", rows, columns, np.zeros((rows, columns // 32 * 18), np.uint8))
        for name, (rows, columns) in shapes.items()
    }
    size, stored_as = size_from_gguf(GgufFile(Path("small.gguf"), metadata, tensors), "small")
    assert (size.num_params, size.active_params) == (14_592, 6_400 + 8_192 / 4)
    assert (size.head_width, size.kv_numbers_per_token) == (16, 2 * 3 * 2 * 16)
    assert stored_as.bytes_per_number == weight_format("q4_0").bytes_per_number


def test_a_gguf_with_latent_attention_keeps_its_latent() -> None:
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.attention.head_count": 16,
        "deepseek2.attention.head_count_kv": 16,
        "deepseek2.attention.key_length": 192,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64,
        "deepseek2.block_count": 27,
        "deepseek2.embedding_length": 2048,
        "deepseek2.context_length": 163_840,
    }
    embedding = HostTensor("token_embd.weight", "Q4_0", 100, 64, np.zeros((100, 36), np.uint8))
    size, _ = size_from_gguf(GgufFile(Path("lite.gguf"), metadata, {"token_embd.weight": embedding}), "lite")
    assert size.kv_numbers_per_token == 27 * (512 + 64)
