"""Options of `paceline serve`: values, suffixes, vLLM's flags, and one line for each mistake."""

import subprocess
import sys

import pytest

from paceline.config import EngineConfig, ServeConfig, parse_bytes, parse_count
from paceline.errors import ConfigError
from paceline.vllm_flags import FOREIGN_FLAGS, answer_foreign_flags


@pytest.mark.parametrize(
    ("text", "value"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("1.5k", 1500), ("1m", 10**6), ("1M", 2**20)]
)
def test_counts_take_suffixes(text: str, value: int) -> None:
    assert parse_count("--max-model-len", text) == value


@pytest.mark.parametrize(("text", "value"), [("512MiB", 2**29), ("2GB", 2 * 10**9), ("1.5g", 3 * 2**29), ("7", 7)])
def test_amounts_of_memory_take_units(text: str, value: int) -> None:
    assert parse_bytes("--kv-memory", text) == value


@pytest.mark.parametrize("text", ["", "four", "-1", "1.23456k", "4kk", "1e3", "9" * 40])
def test_a_wrong_count_names_the_option_and_the_value(text: str) -> None:
    with pytest.raises(ConfigError, match="--max-num-seqs must be"):
        parse_count("--max-num-seqs", text)


@pytest.mark.parametrize(
    ("fields", "option"),
    [
        ({"max_num_seqs": 0}, "--max-num-seqs"),
        ({"block_size": 1000}, "--block-size"),
        ({"kv_cache_dtype": "fp8"}, "--kv-cache-dtype"),
        ({"num_threads": 0}, "--threads"),
    ],
)
def test_a_value_outside_its_limits_names_option_limit_and_value(fields: dict[str, object], option: str) -> None:
    with pytest.raises(ConfigError, match=option):
        EngineConfig(**fields)


@pytest.mark.parametrize("field", ["tool_call_parser", "reasoning_parser"])
def test_parsers_are_known_by_name(field: str) -> None:
    option = "--" + field.replace("_", "-")
    with pytest.raises(ConfigError, match=f"{option} must be one of .*, got 'pythonic'"):
        ServeConfig(EngineConfig(), **{field: "pythonic"})  # type: ignore[arg-type]
    assert answer_foreign_flags(["serve", option, "x", "--enable-auto-tool-choice"])[0] == ["serve", option, "x"]


def test_the_engine_config_survives_the_way_to_the_engine() -> None:
    config = EngineConfig(model="m", max_model_len=100, kv_memory_bytes=2**30)
    assert EngineConfig.from_json_mapping(config.to_json_mapping()) == config


def test_model_names_default_to_the_model() -> None:
    assert ServeConfig(EngineConfig(model="m")).model_names == ("m",)
    assert ServeConfig(EngineConfig(model="m"), served_model_names=("a", "b")).model_names == ("a", "b")


def test_flags_of_vllm_are_answered() -> None:
    command = ["serve", "--gpu-memory-utilization", "0.9", "m", "--enable-chunked-prefill", "--dtype=bfloat16"]
    remaining, notes = answer_foreign_flags(command)
    assert remaining == ["serve", "m"]
    assert [note.split(":")[0] for note in notes] == ["--gpu-memory-utilization", "--enable-chunked-prefill", "--dtype"]
    with pytest.raises(ConfigError, match="--tensor-parallel-size: "):
        answer_foreign_flags(["serve", "m", "--tensor-parallel-size", "2"])
    assert all(flag.answer for flag in FOREIGN_FLAGS.values())


def run_cli(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *arguments], capture_output=True, text=True, timeout=20, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--max-num-seqs", "many"], "paceline: --max-num-seqs must be a number"),
        (["--port", "70000"], "paceline: --port must be between 0 and 65535, got 70000"),
        (["-tp", "2"], "paceline: -tp: this server runs one replica"),
        (["--host", "192.0.2.1"], "paceline: can't listen on 192.0.2.1 port 8000"),
    ],
)
def test_a_mistake_is_one_line_and_a_non_zero_exit(arguments: list[str], answer: str) -> None:
    result = run_cli("serve", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(answer)
    assert result.stderr.count("\n") == 1


def test_the_version_is_printed_without_loading_the_server() -> None:
    result = run_cli("--version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "paceline")
    code = "import sys, paceline.cli; print([m for m in ('fastapi', 'numpy', 'tokenizers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
