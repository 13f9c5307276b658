"""The same model as GGUF and as safetensors gives the same logits (B059, B057), and metadata means what it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tiny_checkpoints import expected_logits, make_model, our_logits, relative_error, save_model, tokens_of, write_gguf

from paceline.errors import CheckpointError
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.gguf_checkpoint import open_gguf
from paceline.models.rope import frequencies
from paceline.models.spec import FrequencyDivisors, RopeSpec
from paceline.ops.protocol import Backend, KvFormat
from paceline.ops.reference import ReferenceBackend

B059 = {"num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 16}


def test_b059_query_and_key_rows_are_put_in_order(backend: Backend, tmp_path: Path) -> None:
    model = make_model("llama", **B059)
    directory = DirectoryCheckpoint(save_model(model, tmp_path / "directory"))
    from_gguf = open_gguf(write_gguf(model, directory.spec, tmp_path / "model.gguf"))
    tokens = tokens_of(50)
    ours = our_logits(from_gguf, backend, tokens)
    assert np.abs(ours - our_logits(directory, backend, tokens)).max() <= 1e-4
    assert relative_error(ours, expected_logits(model, tokens)) <= 1e-4


def test_biases_are_put_in_order_too(backend: Backend, tmp_path: Path) -> None:
    model = make_model("llama", attention_bias=True, mlp_bias=True, **B059)
    spec = DirectoryCheckpoint(save_model(model, tmp_path / "directory")).spec
    from_gguf = open_gguf(write_gguf(model, spec, tmp_path / "model.gguf"))
    tokens = tokens_of(50)
    assert relative_error(our_logits(from_gguf, backend, tokens), expected_logits(model, tokens)) <= 1e-4


def test_quantized_rows_are_put_in_order_exactly(tmp_path: Path) -> None:
    """Un-permuting the bytes of a Q4_0 tensor equals un-permuting its values."""
    model = make_model("llama", **B059)
    spec = DirectoryCheckpoint(save_model(model, tmp_path / "directory")).spec
    plain = open_gguf(write_gguf(model, spec, tmp_path / "plain.gguf"))
    rows = plain.tensor("layers.0.query.weight").data
    quantized = gguf.quantize(rows.view(np.float32), gguf.GGMLQuantizationType.Q4_0)
    from paceline.models.gguf_checkpoint import _halves_from_pairs
    from paceline.ops.dequantize import dequantize
    from paceline.ops.protocol import HostTensor, TensorKind

    tensor = HostTensor("q", TensorKind.Q4_0, len(rows), 64, quantized)
    values = dequantize(tensor).reshape(8, 8, 2, 64).swapaxes(1, 2).reshape(128, 64)
    assert np.array_equal(dequantize(_halves_from_pairs(tensor, 8)), values)


def test_b057_a_gguf_without_output_weight_is_tied(backend: Backend, tmp_path: Path) -> None:
    model = make_model("llama", tie_word_embeddings=True)
    spec = DirectoryCheckpoint(save_model(model, tmp_path / "directory")).spec
    checkpoint = open_gguf(write_gguf(model, spec, tmp_path / "model.gguf"))
    assert checkpoint.spec.tied_embeddings
    tokens = tokens_of(50)
    assert relative_error(our_logits(checkpoint, backend, tokens), expected_logits(model, tokens)) <= 1e-4


ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


@pytest.mark.parametrize("rope", ROPES)
def test_metadata_states_the_scaling(rope: str, tmp_path: Path) -> None:
    model = make_model("llama", rope_parameters=ROPES[rope])
    spec = DirectoryCheckpoint(save_model(model, tmp_path / "directory")).spec
    read = open_gguf(write_gguf(model, spec, tmp_path / "model.gguf")).spec
    assert read == replace(spec, norm_epsilon=read.norm_epsilon)
    assert read.norm_epsilon == np.float32(spec.norm_epsilon)


def test_llama3_scaling_comes_as_a_tensor_of_divisors(tmp_path: Path) -> None:
    rope = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    model = make_model("llama", rope_parameters=rope)
    spec = DirectoryCheckpoint(save_model(model, tmp_path / "directory")).spec
    plain = frequencies(RopeSpec(spec.rope.theta, spec.rope.rotated_width))
    divisors = FrequencyDivisors(tuple((plain / frequencies(spec.rope)).tolist()))
    as_divisors = replace(spec, rope=replace(spec.rope, scaling=divisors))
    checkpoint = open_gguf(write_gguf(model, as_divisors, tmp_path / "model.gguf"))
    assert isinstance(checkpoint.spec.rope.scaling, FrequencyDivisors)
    tokens = tokens_of(100)
    logits = our_logits(checkpoint, ReferenceBackend(), tokens)
    assert relative_error(logits, expected_logits(model, tokens)) <= 1e-4


def test_a_window_in_metadata_is_obeyed(backend: Backend, tmp_path: Path) -> None:
    model = make_model("mistral", sliding_window=24)
    spec = DirectoryCheckpoint(save_model(model, tmp_path / "directory")).spec
    checkpoint = open_gguf(write_gguf(model, spec, tmp_path / "model.gguf"))
    tokens = tokens_of(100)
    assert relative_error(our_logits(checkpoint, backend, tokens), expected_logits(model, tokens)) <= 1e-4


def test_other_architectures_are_refused_by_name(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.zeros((4, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="mamba"):
        open_gguf(tmp_path / "model.gguf")


def test_bfloat16_kv_rounds_keys_and_values(tmp_path: Path) -> None:
    """The reference keeps KV in the format asked for: bfloat16 moves the logits, by about its precision."""
    from tiny_checkpoints import make_session

    from paceline.ops.protocol import Batch

    checkpoint = DirectoryCheckpoint(save_model(make_model("llama"), tmp_path))
    tokens = np.array(tokens_of(32), np.int32)
    table = np.arange(2, dtype=np.int32)[None]
    batch = Batch(tokens, np.arange(32, dtype=np.int32), np.array([0, 32], np.int32), np.zeros(1, np.int32), table)
    logits = {}
    for kv_format in KvFormat:
        session = make_session(checkpoint, ReferenceBackend(), 32, kv_format)
        session.forward(batch)
        logits[kv_format] = session.logits(np.arange(32, dtype=np.int32))
    assert 1e-5 < relative_error(logits[KvFormat.BFLOAT16], logits[KvFormat.FLOAT32]) < 0.05
