"""`paceline models`: what is at hand, what is in a file, what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import gguf
import pytest
from commands import paceline
from tiny_folder import tiny_folder

from models.hostile_files import HOSTILE, STRING, file_bytes, with_entry
from models.tiny_checkpoints import make_model, save_model
from paceline.models.resolve import resolve

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def inspected(*arguments: object) -> dict[str, Any]:
    done = paceline("models", "inspect", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    fields: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode == 0) == fields["is_served"]
    return fields


def test_the_built_in_model_is_described_as_an_independent_reader_sees_it() -> None:
    fields = inspected("smollm2-135m", "--context", "2K")
    reader = gguf.GGUFReader(resolve("smollm2-135m"))
    tensors = reader.tensors
    assert fields["is_served"]
    assert fields["architecture"] == "llama"
    assert (fields["num_layers"], fields["num_heads"], fields["num_kv_heads"], fields["head_width"]) == (30, 9, 3, 64)
    assert (fields["max_context"], fields["vocab_size"]) == (8192, 49152)
    assert fields["num_parameters"] == sum(int(tensor.n_elements) for tensor in tensors)
    assert fields["num_bytes"] == sum(int(tensor.n_bytes) for tensor in tensors)
    kinds: dict[str, int] = {}
    for tensor in tensors:
        kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + int(tensor.n_bytes)
    found: dict[str, int] = {}
    for share in fields["tensors"]:
        found[share["kind"]] = found.get(share["kind"], 0) + share["num_bytes"]
    assert found == kinds
    query = next(share for share in fields["tensors"] if share["pattern"] == "blk.*.attn_q.weight")
    assert (query["num_tensors"], query["num_parameters"]) == (30, 30 * 576 * 576)
    token_bytes = 2 * 30 * 3 * 64 * 2
    assert fields["kv"]["bfloat16"] == {
        "token_bytes": token_bytes,
        "context_bytes": 2048 * token_bytes,
        "memory_bytes": fields["num_bytes"] + 2048 * token_bytes,
    }
    assert fields["kv"]["float32"]["token_bytes"] == 2 * token_bytes
    assert fields["tokenizer"] == "byte-level BPE (gpt2, smollm)"
    assert fields["has_chat_template"]


def test_the_table_says_the_same() -> None:
    done = paceline("models", "inspect", "smollm2-135m")
    assert done.returncode == 0
    assert "134,515,008" in done.stdout
    assert "23,040 bytes a token; 180 MiB at 8,192 tokens" in done.stdout
    assert "blk.*.ffn_down.weight" in done.stdout


def test_a_folder_is_described_and_without_a_tokenizer_not_served(tmp_path: Path) -> None:
    whole = inspected(tiny_folder(tmp_path / "whole"))
    assert whole["is_served"]
    assert (whole["format"], whole["architecture"], whole["num_layers"]) == ("safetensors", "llama", 2)
    assert whole["tokenizer"] == "BPE"
    assert not whole["has_chat_template"]
    assert {share["kind"] for share in whole["tensors"]} == {"F32"}
    bare = inspected(save_model(make_model("llama"), tmp_path / "bare"))
    assert not bare["is_served"]
    assert "tokenizer.json is missing" in bare["refusal"]


def test_a_model_that_we_do_not_serve_is_described_with_the_reason(tmp_path: Path) -> None:
    folder = save_model(make_model("qwen2"), tmp_path / "folder")
    fields = inspected(folder)
    assert not fields["is_served"]
    assert "'qwen2' is not a family we know" in fields["refusal"]
    assert (fields["num_layers"], fields["max_context"]) == (2, 128)
    assert fields["num_parameters"] > 0
    assert fields["kv"] == {}
    (tmp_path / "other.gguf").write_bytes(with_entry("general.architecture", STRING, "gemma3"))
    fields = inspected(tmp_path / "other.gguf")
    assert fields["architecture"] == "gemma3"
    assert "'gemma3' is not a family we know" in fields["refusal"]
    done = paceline("models", "inspect", tmp_path / "other.gguf")
    assert done.returncode == 1
    assert "no: " in done.stdout


def test_foreign_words_do_not_reach_the_terminal_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(with_entry("general.architecture", STRING, "\x1b[2J[red]" + "x" * 5000))
    done = paceline("models", "inspect", tmp_path / "bad.gguf")
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "[red]" in done.stdout
    assert done.stdout.count("x") < 2000


@pytest.mark.parametrize("name", ["0xFFFFFFFF dimensions", "2^60 entries", "unknown quantisation type", "2^31 layers"])
def test_b083_a_hostile_file_is_one_sentence_and_no_success(name: str, tmp_path: Path) -> None:
    data, said = HOSTILE[name]
    (tmp_path / "bad.gguf").write_bytes(data)
    before = os.times()
    done = paceline("models", "inspect", tmp_path / "bad.gguf")
    after = os.times()
    assert done.returncode in (1, 2)
    assert said in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert used_s < 3.0


def test_what_is_at_hand_is_listed(tmp_path: Path) -> None:
    cache = tmp_path / "hub"
    snapshot = cache / "models--owner--name" / "snapshots" / COMMIT
    tiny_folder(snapshot)
    (snapshot.parents[1] / "blobs").mkdir()
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(COMMIT)
    mine = tmp_path / "mine" / "deep"
    mine.mkdir(parents=True)
    (mine / "small.gguf").write_bytes(file_bytes())
    done = paceline("models", "list", tmp_path / "mine", "--json", env={"HF_HUB_CACHE": str(cache)})
    assert done.returncode == 0, done.stderr
    models = {model["name"]: model for model in json.loads(done.stdout)}
    assert set(models) == {"smollm2-135m", "owner/name", str(mine / "small.gguf")}
    assert models["smollm2-135m"]["source"] == "package"
    assert models["smollm2-135m"]["num_bytes"] == resolve("smollm2-135m").stat().st_size
    assert models["owner/name"]["path"] == str(snapshot)
    assert models["owner/name"]["num_bytes"] == (snapshot / "model.safetensors").stat().st_size
    table = paceline("models", "list", tmp_path / "mine", env={"HF_HUB_CACHE": str(cache)}).stdout
    assert all(name in table for name in models)
    seen = paceline("models", "inspect", "owner/name", env={"HF_HUB_CACHE": str(cache)})
    assert seen.returncode == 0, seen.stderr


def test_inspect_downloads_nothing(tmp_path: Path) -> None:
    done = paceline("models", "inspect", "owner/name", env={"HF_HUB_CACHE": str(tmp_path)})
    assert done.returncode == 2
    assert "paceline models pull owner/name" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("inspect", "smollm2-135m", "--context", "9000"), "8192"),
        (("inspect", "smollm2-135m", "--context", "many"), "--context"),
        (("inspect", "./none"), "nothing is there"),
        (("list", "./none"), "no folder"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = paceline("models", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
