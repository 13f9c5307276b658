"""`paceline serve` on a model that can't be loaded: one clear sentence, soon, and nothing left running."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from models.hostile_files import HOSTILE
from models.tiny_checkpoints import make_model, save_model

# Interpreter, HTTP and text are imported before the engine's refusal is read: about 1 s of an idle core.
MAX_START_S = 5.0
MAX_CPU_S = 2.0


def refused_start(model: Path) -> str:
    """What serving the model says on its way out."""
    command = [sys.executable, "-m", "paceline.cli", "serve", str(model), "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started_s, before = time.monotonic(), os.times()
    process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload]
    said, complaint = process.communicate(timeout=20)
    after = os.times()
    assert process.returncode == 2
    assert time.monotonic() - started_s < MAX_START_S
    used_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert used_s < MAX_CPU_S
    assert said == ""
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    line, end, rest = complaint.partition("\n")
    assert (end, rest) == ("\n", "")
    return str(line)


@pytest.mark.parametrize("name", ["0xFFFFFFFF dimensions", "2^60 entries", "two tensors on the same bytes"])
def test_b083_a_hostile_file_ends_the_start(name: str, tmp_path: Path) -> None:
    data, said = HOSTILE[name]
    (tmp_path / "bad.gguf").write_bytes(data)
    line = refused_start(tmp_path / "bad.gguf")
    assert line.startswith("paceline: ")
    assert "bad.gguf" in line
    assert said in line


def test_b055_a_missing_shard_ends_the_start(tmp_path: Path) -> None:
    save_model(make_model("llama"), tmp_path, max_shard_size="80KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) >= 3
    shards[1].unlink()
    line = refused_start(tmp_path)
    assert shards[1].name in line
    assert "incomplete download?" in line
