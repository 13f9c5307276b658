"""Every field of a spec has an effect: flipping one changes the logits, or is refused where the tensors disagree."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_checkpoints import make_model, our_logits, save_model, tokens_of

from paceline.errors import CheckpointError
from paceline.models.checkpoint import TokenizerSource, require_tensors
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.families import config_name
from paceline.models.safetensors import read_directory
from paceline.models.spec import (
    FrequencyDivisors,
    LinearScaling,
    Llama3Scaling,
    ModelSpec,
    RopeScaling,
    RopeSpec,
    YarnScaling,
)
from paceline.models.transformer import load_model
from paceline.ops.protocol import Activation, Backend, HostTensor

LLAMA3 = Llama3Scaling(4.0, 1.0, 4.0, 32)
YARN = YarnScaling(4.0, 512, 1.0)
ROPE = RopeSpec(10_000.0, 16)


def spec_with_rope(rope: RopeSpec) -> dict[str, Any]:
    return {"rope": rope}


def spec_with(scaling: RopeScaling | None) -> dict[str, Any]:
    return {"rope": replace(ROPE, scaling=scaling)}


# name -> (fields before, fields after); the checkpoint has every bias and a head of its own.
FLIPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "num_layers": ({}, {"num_layers": 1, "windows": (None,)}),
    "num_heads, num_kv_heads, head_width": (
        {},
        {"num_heads": 2, "num_kv_heads": 1, "head_width": 32, "rope": RopeSpec(10_000.0, 32)},
    ),
    "norm_epsilon": ({}, {"norm_epsilon": 1e-2}),
    "activation": ({}, {"activation": Activation.GELU_TANH}),
    "tied_embeddings": ({}, {"tied_embeddings": True}),
    "qkv_bias": ({}, {"qkv_bias": False}),
    "attention_output_bias": ({}, {"attention_output_bias": False}),
    "mlp_bias": ({}, {"mlp_bias": False}),
    "windows": ({}, {"windows": (24, 24)}),
    "windows of one layer": ({"windows": (24, 24)}, {"windows": (24, None)}),
    "windows by one": ({"windows": (24, 24)}, {"windows": (25, 25)}),
    "rope theta": ({}, spec_with_rope(replace(ROPE, theta=20_000.0))),
    "rope rotated_width": ({}, spec_with_rope(replace(ROPE, rotated_width=8))),
    "rope scaling linear": (spec_with(None), spec_with(LinearScaling(4.0))),
    "rope scaling linear factor": (spec_with(LinearScaling(2.0)), spec_with(LinearScaling(4.0))),
    "rope scaling divisors": (spec_with(None), spec_with(FrequencyDivisors((1.0,) * 7 + (2.0,)))),
    "rope scaling llama3": (spec_with(None), spec_with(LLAMA3)),
    "rope llama3 factor": (spec_with(LLAMA3), spec_with(replace(LLAMA3, factor=8.0))),
    "rope llama3 low": (spec_with(LLAMA3), spec_with(replace(LLAMA3, low_frequency_factor=2.0))),
    "rope llama3 high": (spec_with(LLAMA3), spec_with(replace(LLAMA3, high_frequency_factor=8.0))),
    "rope llama3 original": (spec_with(LLAMA3), spec_with(replace(LLAMA3, original_context=64))),
    "rope scaling yarn": (spec_with(None), spec_with(YARN)),
    "rope yarn factor": (spec_with(YARN), spec_with(replace(YARN, factor=8.0))),
    "rope yarn original": (spec_with(YARN), spec_with(replace(YARN, original_context=64))),
    "rope yarn attention_factor": (spec_with(YARN), spec_with(replace(YARN, attention_factor=1.1))),
    "rope yarn beta_fast": (spec_with(YARN), spec_with(replace(YARN, beta_fast=2.0))),
    "rope yarn beta_slow": (spec_with(YARN), spec_with(replace(YARN, beta_slow=0.25))),
    "rope yarn rounds_ramp": (spec_with(YARN), spec_with(replace(YARN, rounds_ramp=False))),
}
# Sizes that the tensors of a checkpoint state too.
SIZES = {"width": 32, "ff_width": 48, "vocab_size": 95, "num_heads": 8, "num_kv_heads": 4, "head_width": 8}


class RespecifiedCheckpoint:
    """The same tensors under another spec."""

    notes: tuple[str, ...] = ()

    def __init__(self, base: DirectoryCheckpoint, spec: ModelSpec) -> None:
        self.path = base.path
        self.spec = spec
        self.tokenizer_source: TokenizerSource = base.tokenizer_source
        self._tensors = require_tensors(spec, read_directory(base.path), config_name, base.path)

    def tensor(self, name: str) -> HostTensor:
        return self._tensors[name]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> DirectoryCheckpoint:
    path: Path = tmp_path_factory.mktemp("switches")
    return DirectoryCheckpoint(save_model(make_model("llama", attention_bias=True, mlp_bias=True), path))


@pytest.mark.parametrize("flip", FLIPS)
def test_flipping_a_switch_changes_the_logits(flip: str, base: DirectoryCheckpoint, backend: Backend) -> None:
    tokens = tokens_of(60)
    before, after = (
        our_logits(RespecifiedCheckpoint(base, replace(base.spec, **changed)), backend, tokens)
        for changed in FLIPS[flip]
    )
    assert np.abs(before - after).max() > 1e-3


@pytest.mark.parametrize("size", SIZES)
def test_a_size_the_tensors_do_not_have_is_refused(size: str, base: DirectoryCheckpoint) -> None:
    rope = RopeSpec(10_000.0, 8)
    with pytest.raises(CheckpointError, match="must be"):
        RespecifiedCheckpoint(base, replace(base.spec, rope=rope, **{size: SIZES[size]}))


def test_max_context_bounds_the_positions(base: DirectoryCheckpoint, backend: Backend) -> None:
    short = RespecifiedCheckpoint(base, replace(base.spec, max_context=16))
    assert len(load_model(short, backend).rotary.cos) == 16
    with pytest.raises(AssertionError, match="17 positions"):
        load_model(short, backend, num_positions=17)


def test_no_field_is_left_out() -> None:
    flipped = {name for before, after in FLIPS.values() for name in before.keys() | after.keys()}
    assert flipped | SIZES.keys() | {"max_context"} == {field.name for field in fields(ModelSpec)}
