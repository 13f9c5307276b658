"""Directories of safetensors: shards (B055), tied and untied heads (B057), and what a damaged one costs."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_checkpoints import expected_logits, make_model, our_logits, relative_error, save_model, tokens_of

from paceline.errors import CheckpointError
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.safetensors import INDEX, WHOLE, read_safetensors
from paceline.ops.reference import ReferenceBackend

TOKENS = tokens_of(20)


@pytest.fixture(scope="module")
def model() -> Any:
    return make_model("llama")


@pytest.fixture
def sharded(model: Any, tmp_path: Path) -> Path:
    path = save_model(model, tmp_path / "sharded", max_shard_size="80KB")
    assert len(list(path.glob("*.safetensors"))) >= 3
    return path


def edit_json(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))


def edit_tensors(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


def logits_of(path: Path) -> Any:
    return our_logits(DirectoryCheckpoint(path), ReferenceBackend(), TOKENS)


def test_shards_give_the_logits_of_the_whole(model: Any, sharded: Path) -> None:
    assert relative_error(logits_of(sharded), expected_logits(model, TOKENS)) <= 1e-4


def test_b055_a_missing_shard_is_named_before_weights_are_read(sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    read: list[Path] = []
    monkeypatch.setattr("paceline.models.safetensors.read_safetensors", read.append)
    with pytest.raises(CheckpointError, match="incomplete download") as caught:
        DirectoryCheckpoint(sharded)
    assert shard.name in caught.value.message
    assert read == []


def test_b055_a_stale_shard_outside_the_index_is_ignored(model: Any, sharded: Path) -> None:
    stale = {"model.norm.weight": torch.full((64,), 9.0), "model.old.weight": torch.ones(3)}
    save_file(stale, sharded / "model-00009-of-00009.safetensors")
    save_file(stale, sharded / WHOLE)
    assert relative_error(logits_of(sharded), expected_logits(model, TOKENS)) <= 1e-4


def test_b055_the_index_decides_which_shard_a_tensor_is_read_from(model: Any, sharded: Path) -> None:
    """Another shard of the index holds an older version of the tensor."""
    weight_map = json.loads((sharded / INDEX).read_text())["weight_map"]
    other = next(shard for shard in set(weight_map.values()) if shard != weight_map["model.norm.weight"])
    edit_tensors(sharded / other, lambda tensors: tensors.update({"model.norm.weight": torch.full((64,), 9.0)}))
    assert relative_error(logits_of(sharded), expected_logits(model, TOKENS)) <= 1e-4


def test_b055_a_tensor_missing_from_the_index_is_named(sharded: Path) -> None:
    edit_json(sharded / INDEX, lambda index: index["weight_map"].pop("model.norm.weight"))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight' is missing"):
        DirectoryCheckpoint(sharded)


def test_b055_a_tensor_the_index_has_and_the_shard_has_not_is_named(sharded: Path) -> None:
    shard = json.loads((sharded / INDEX).read_text())["weight_map"]["model.norm.weight"]
    edit_tensors(sharded / shard, lambda tensors: tensors.pop("model.norm.weight"))
    with pytest.raises(CheckpointError, match=r"model\.norm\.weight' is missing, though"):
        DirectoryCheckpoint(sharded)


def test_b055_an_extra_tensor_is_named(sharded: Path) -> None:
    name = "model.layers.0.self_attn.q_norm.weight"
    shard = sorted(sharded.glob("*.safetensors"))[0]
    edit_tensors(shard, lambda tensors: tensors.update({name: torch.ones(16)}))
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({name: shard.name}))
    with pytest.raises(CheckpointError, match="q_norm"):
        DirectoryCheckpoint(sharded)


@pytest.mark.parametrize("file_name", ["../outside.safetensors", "/etc/passwd", "", 3])
def test_an_index_names_no_file_outside_the_directory(file_name: object, sharded: Path) -> None:
    edit_json(sharded / INDEX, lambda index: index["weight_map"].update({"model.norm.weight": file_name}))
    with pytest.raises(CheckpointError, match="plain file name"):
        DirectoryCheckpoint(sharded)


def test_b057_tied_without_a_head(tmp_path: Path) -> None:
    model = make_model("llama", tie_word_embeddings=True)
    path = save_model(model, tmp_path)
    assert "lm_head.weight" not in read_safetensors(path / WHOLE)
    assert relative_error(logits_of(path), expected_logits(model, TOKENS)) <= 1e-4


@pytest.mark.parametrize("differs", [True, False])
def test_b057_tied_with_a_head_uses_the_embedding_and_reports_a_difference(differs: bool, tmp_path: Path) -> None:
    model = make_model("llama", tie_word_embeddings=True)
    path = save_model(model, tmp_path)
    embedding = load_file(path / WHOLE)["model.embed_tokens.weight"]
    head = embedding + 1.0 if differs else embedding.clone()
    edit_tensors(path / WHOLE, lambda tensors: tensors.update({"lm_head.weight": head}))
    assert relative_error(logits_of(path), expected_logits(model, TOKENS)) <= 1e-4
    assert len(DirectoryCheckpoint(path).notes) == int(differs)


def test_b057_untied_without_a_head_is_refused_by_name(model: Any, tmp_path: Path) -> None:
    path = save_model(model, tmp_path)
    edit_tensors(path / WHOLE, lambda tensors: tensors.pop("lm_head.weight"))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight' is missing"):
        DirectoryCheckpoint(path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown family": ({"model_type": "mamba"}, "mamba"),
    "no family": ({"model_type": None}, "model_type"),
    "activation": ({"hidden_act": "gelu"}, "hidden_act"),
    "quantized weights": ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
    "window in a family without": ({"sliding_window": 64}, "sliding_window"),
    "rope type": ({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}, "longrope"),
    "rope key": ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "mrope_section": [1]}}, "mrope_section"),
    "partial rotary": ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
    "rope factor": ({"rope_parameters": {"rope_type": "linear", "factor": "4"}}, "factor"),
    "rope factor of 0": ({"rope_parameters": {"rope_type": "linear", "factor": 0.0}}, "factor"),
    "experts": ({"num_local_experts": 8}, "num_local_experts"),
    "size as text": ({"hidden_size": "64"}, "hidden_size"),
    "size missing": ({"num_hidden_layers": None}, "num_hidden_layers"),
    "size against the tensors": ({"intermediate_size": 95}, "mlp.gate_proj"),
    "vocabulary against the tensors": ({"vocab_size": 95}, "embed_tokens"),
    "heads that do not divide": ({"num_key_value_heads": 3}, "num_kv_heads"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_switch_we_do_not_implement_is_refused_by_name(case: str, model: Any, tmp_path: Path) -> None:
    changes, named = REFUSED[case]
    path = save_model(model, tmp_path)
    edit_json(path / "config.json", lambda config: config.update(changes))
    with pytest.raises(CheckpointError, match=named):
        DirectoryCheckpoint(path)


def with_header(header: Any) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + bytes(64)


def entry(**changes: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [4, 4], "data_offsets": [0, 64], **changes}}


DAMAGED = {
    "empty": b"",
    "short": b"abc",
    "header past the end": struct.pack("<Q", 1 << 60) + bytes(64),
    "header is no JSON": with_header(b"{{"),
    "header is a list": with_header([1]),
    "header nested too deep": with_header(b"[" * 200_000),
    "entry is a number": with_header({"x": 1}),
    "dtype": with_header(entry(dtype="F8_E5M2")),
    "shape of floats": with_header(entry(shape=[4.0, 4.0])),
    "shape with 0": with_header(entry(shape=[0, 4], data_offsets=[0, 0])),
    "scalar": with_header(entry(shape=[], data_offsets=[0, 4])),
    "size other than the shape's": with_header(entry(data_offsets=[0, 60])),
    "past the end": with_header(entry(data_offsets=[16, 80])),
    "huge": with_header(entry(shape=[1 << 40, 1 << 40], data_offsets=[0, 64])),
    "reversed": with_header(entry(data_offsets=[64, 0])),
    "overlap": with_header(entry() | {"y": entry()["x"]}),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_one_clear_error(case: str, tmp_path: Path) -> None:
    (tmp_path / WHOLE).write_bytes(DAMAGED[case])
    with pytest.raises(CheckpointError, match=WHOLE):
        read_safetensors(tmp_path / WHOLE)


def test_a_directory_without_weights_is_refused(model: Any, tmp_path: Path) -> None:
    path = save_model(model, tmp_path)
    (path / WHOLE).rename(path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="Pickled"):
        DirectoryCheckpoint(path)
    shutil.rmtree(path)
    path.mkdir()
    with pytest.raises(CheckpointError, match=r"config\.json"):
        DirectoryCheckpoint(path)


def test_tensors_are_views_with_the_values_of_the_file(model: Any, tmp_path: Path) -> None:
    checkpoint = DirectoryCheckpoint(save_model(model, tmp_path))
    tensor = checkpoint.tensor("layers.1.down.weight")
    assert not tensor.data.flags.owndata
    assert np.array_equal(tensor.data.view(np.float32), model.model.layers[1].mlp.down_proj.weight.detach().numpy())
