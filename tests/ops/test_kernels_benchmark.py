"""`benchmarks/kernels/run.py` builds, measures what it says, and derives its ratios from what it measured."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
HAS_TOOLS = shutil.which("make") is not None and shutil.which(os.environ.get("CXX", "g++")) is not None

pytestmark = pytest.mark.skipif(not HAS_TOOLS, reason="needs make and a C++ compiler")


def run(build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(ROOT / "benchmarks/kernels/run.py"),
        "--build",
        str(build),
        "--repeats",
        "2",
        *options,
    ]
    # Unoptimized: a third of the time to compile, and all that is judged here are the kinds of figures.
    environment = os.environ | {"OPTIMIZE": "-O0", "CXX": os.environ.get("CXX", "g++")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    return subprocess.run([*command, *options], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def done(build: Path) -> subprocess.CompletedProcess[str]:
    chosen = ("--kernel", "linear", "attention_decode", "norm", "--format", "Q4_1", "bfloat16", "float32")
    return run(build, *chosen, "--rows", "1", "--out", str(build / "cells.jsonl"))


@pytest.fixture(scope="module")
def cells(build: Path, done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    header, *lines = map(json.loads, (build / "cells.jsonl").read_text().splitlines())
    assert header["threads"] == 2
    return {f"{line['kernel']} {line['shape']}": line for line in lines}


def test_it_measures_the_shapes_of_the_model(cells: dict[str, dict[str, Any]]) -> None:
    shapes = ["qkv 960x576", "o 576x576", "gate_up 3072x576", "down 576x1536"]
    assert list(cells) == [*(f"linear {shape}" for shape in shapes), "attention_decode 4000 keys", "norm 576"]
    linear, attention = cells["linear qkv 960x576"], cells["attention_decode 4000 keys"]
    # A block of Q4_1 is 20 bytes for 32 numbers; a key and a value are 3 heads of 64 bfloat16 each.
    assert (linear["bytes"], linear["operations"]) == (960 * 576 * 20 / 32, 2 * 960 * 576)
    assert (attention["bytes"], attention["operations"]) == (4000 * 2 * 3 * 64 * 2, 4000 * 9 * 64 * 4)


def test_every_repeat_has_its_time_and_its_peaks(cells: dict[str, dict[str, Any]]) -> None:
    for cell in cells.values():
        peaks = [*cell["read_gb_per_s"].values(), *cell["arithmetic_gop_per_s"].values()]
        assert all(len(figures) == 2 and min(figures) > 0 for figures in [cell["time_us"], *peaks])
        assert set(cell["read_gb_per_s"]) == {"memory", "cache"}
        if cell["isa"] == "avx512":
            assert set(cell["arithmetic_gop_per_s"]) == {"int8", "bfloat16", "float32"}


def test_ratios_are_of_neighbours_in_time(cells: dict[str, dict[str, Any]]) -> None:
    cell = cells["linear gate_up 3072x576"]
    pairs = zip(cell["time_us"], cell["read_gb_per_s"]["memory"], strict=True)
    ratios = [cell["bytes"] / (1e3 * us) / peak for us, peak in pairs]
    assert cell["mbu"] == pytest.approx(sum(ratios) / 2, abs=1e-4)
    assert cell["share_of_bound"] >= max(cell["mbu"], cell["mfu"] or 0)


def test_the_table_has_a_line_a_cell_and_a_summary(
    done: subprocess.CompletedProcess[str], cells: dict[str, dict[str, Any]]
) -> None:
    for name, cell in cells.items():
        assert any(cell["shape"] in line and cell["format"] in line for line in done.stdout.splitlines()), name
    assert "| Q4_1 | " in done.stdout
    assert "memory: " in done.stdout


def test_a_choice_without_cells_is_an_error(build: Path, cells: dict[str, dict[str, Any]]) -> None:
    wrong = run(build, "--kernel", "linear", "--rows", "7")
    assert wrong.returncode == 1
    assert "no cell has these kernels, formats and rows together" in wrong.stderr


def test_a_wrong_number_is_named(build: Path, cells: dict[str, dict[str, Any]]) -> None:
    wrong = run(build, "--threads", "0")
    assert wrong.returncode == 1
    assert "--threads takes whole numbers from 1 to 512, not 0" in wrong.stderr
