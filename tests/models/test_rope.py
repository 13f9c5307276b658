"""Rotary tables equal transformers' at positions where a frequency off by one part in 10^6 shows."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tiny_checkpoints import SIZES
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from paceline.models.config_json import spec_from_config
from paceline.models.rope import frequencies, rotary_table
from paceline.models.spec import FrequencyDivisors, LinearScaling, RopeSpec

LONG = 131_072
ROPES: dict[str, dict[str, Any]] = {
    "plain": {"rope_type": "default", "rope_theta": 500_000.0},
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 3.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8_192,
    },
    "yarn": {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 16.0, "original_max_position_embeddings": 8_192},
}


@pytest.mark.parametrize("kind", ROPES)
def test_tables_equal_transformers_far_out(kind: str) -> None:
    switches = {**SIZES, "head_dim": 128, "max_position_embeddings": LONG, "rope_parameters": dict(ROPES[kind])}
    config = transformers.AutoConfig.for_model("llama", **switches)
    positions = np.array([0, 1, 2, 1_000, 8_191, 8_192, 50_000, LONG - 1])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.tensor(positions)[None])
    rope = spec_from_config(config.to_dict(), "config.json").rope
    table = rotary_table(rope, LONG)
    half = rope.rotated_width // 2
    # One unit in the last place of a frequency moves the angle by 6e-8 of itself: 0.008 at the last position.
    allowed = 1e-5 + positions[:, None] * frequencies(rope) * 1.2e-7
    assert (np.abs(table.cos[positions] - cos[0, :, :half].numpy()) <= allowed).all()
    assert (np.abs(table.sin[positions] - sin[0, :, :half].numpy()) <= allowed).all()


def test_divisors_say_what_a_scaling_says() -> None:
    divisors = FrequencyDivisors((4.0,) * 8)
    by_divisors = frequencies(RopeSpec(10_000.0, 16, divisors))
    assert np.array_equal(by_divisors, frequencies(RopeSpec(10_000.0, 16, LinearScaling(4.0))))
