"""Tiny checkpoints of every family and switch give transformers' float32 logits."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_checkpoints import expected_logits, make_model, our_logits, relative_error, save_model, tokens_of

from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.ops.protocol import Backend

TOLERANCE = 1e-4

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 32}

# name -> (model type, switches). Sequences are 100 tokens: past every window (24) and original rope length (32) here.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with one key/value head": ("llama", {"num_key_value_heads": 1}),
    "llama with head width above width/heads": ("llama", {"head_dim": 48}),
    "llama with head width below width/heads": ("llama", {"head_dim": 8}),
    "llama with attention bias": ("llama", {"attention_bias": True}),
    "llama with mlp bias": ("llama", {"mlp_bias": True}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with gelu": ("llama", {"hidden_act": "gelu_pytorch_tanh"}),
    "llama with large epsilon": ("llama", {"rms_norm_eps": 0.1}),
    "llama with rope theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}),
    "llama with linear rope": (
        "llama",
        {
            "rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0},
            "max_position_embeddings": 32,
        },
    ),
    "llama with llama3 rope": ("llama", {"rope_parameters": LLAMA3}),
    "llama with yarn rope": ("llama", {"rope_parameters": YARN}),
    "llama with yarn rope, all options": (
        "llama",
        {"rope_parameters": YARN | {"beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 1.3}},
    ),
    "llama with yarn rope, mscale": ("llama", {"rope_parameters": YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}}),
    "llama with dynamic rope": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}},
    ),
    "mistral": ("mistral", {"sliding_window": 24, "head_dim": 32}),
    "mistral without window": ("mistral", {"sliding_window": None}),
    "ministral, one layer of two sliding": (
        "ministral",
        {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"], "head_dim": 16},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case: str, backend: Backend, tmp_path: Path) -> None:
    model_type, switches = CASES[case]
    model = make_model(model_type, **switches)
    checkpoint = DirectoryCheckpoint(save_model(model, tmp_path))
    tokens = tokens_of(100)
    assert len(tokens) <= checkpoint.spec.max_context
    logits = our_logits(checkpoint, backend, tokens, chunk_tokens=33)
    assert relative_error(logits, expected_logits(model, tokens)) <= TOLERANCE


def test_old_spelling_of_rope_means_the_same(tmp_path: Path) -> None:
    """`rope_scaling` with `type` and a top-level `rope_theta`, as files before transformers 5 say it."""
    path = save_model(make_model("llama", rope_parameters=LLAMA3), tmp_path)
    spec = DirectoryCheckpoint(path).spec
    config = json.loads((path / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    (path / "config.json").write_text(json.dumps(config))
    assert DirectoryCheckpoint(path).spec == spec


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_files_are_read_exactly(dtype: str, backend: Backend, tmp_path: Path) -> None:
    save_model(make_model("llama").to(getattr(torch, dtype)), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = tokens_of(40)
    logits = our_logits(DirectoryCheckpoint(tmp_path), backend, tokens)
    assert relative_error(logits, expected_logits(model, tokens)) <= TOLERANCE
