"""`--costs HARDWARE,MODEL`: what `plan` takes, `simulate` takes, and both count the same bytes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.costs.estimator import DEFAULT_EFFICIENCY, DatasheetEstimator
from paceline.costs.memory import memory_fit
from paceline.costs.step import LinearLaw, decode_work
from paceline.errors import ConfigError
from paceline.models.resolve import resolve
from paceline.planning.options import PlanOptions
from paceline.sim.costs_option import parse_costs, told_costs

SOURCE = Path(__file__).parents[2] / "src"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 1536,
    "vocab_size": 8192,
    "max_position_embeddings": 2048,
}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def estimator_of(text: str) -> DatasheetEstimator:
    found = parse_costs(text).step_time
    assert isinstance(found, DatasheetEstimator)
    return found


def config_in(folder: Path, **more: object) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps(CONFIG | more), encoding="utf-8")
    return file


def model_as(kind: str, folder: Path) -> str:
    """A model of each kind that `plan` takes without a network."""
    if kind == "gguf":
        return str(resolve("smollm2-135m"))
    if kind == "config":
        return str(config_in(folder))
    if kind == "awq":
        return str(config_in(folder, quantization_config=AWQ).parent)
    return kind


@pytest.mark.parametrize("kind", ["llama-3-8b", "meta-llama/Llama-3.1-8B-Instruct", "gguf", "config", "awq"])
@pytest.mark.parametrize("num_cards", [1, 2])
def test_plan_and_simulate_answer_from_the_same_facts(kind: str, num_cards: int, tmp_path: Path) -> None:
    model = model_as(kind, tmp_path)
    costs = parse_costs(f"{num_cards}xh100,{model}")
    planned = PlanOptions(hardware="H100", gpus=num_cards).question(model).replica
    assert costs.step_time == planned.estimator
    fit = memory_fit(planned.estimator, planned.load, planned.margins)
    assert costs.pool_tokens == int(fit.kv_bytes / fit.kv_bytes_per_token)
    assert costs.max_context == planned.estimator.model.max_context


def test_a_gguf_counts_the_bytes_of_its_own_tensors() -> None:
    path = resolve("smollm2-135m")
    found = estimator_of(f"l4,{path}")
    assert found.weights.name == "as in the file"
    # The file is its tensors, and a tokenizer of under 4 MB.
    assert path.stat().st_size - 4e6 < found.weights_bytes < path.stat().st_size
    assert found.kv_bytes_per_token == 2 * 30 * 3 * 64 * 2


def test_a_config_that_states_quantization_is_counted_so(tmp_path: Path) -> None:
    plain = estimator_of(f"h100,{config_in(tmp_path / 'plain')}")
    packed = estimator_of(f"h100,{config_in(tmp_path / 'packed', quantization_config=AWQ)}")
    assert (plain.weights.name, packed.weights.name) == ("bf16", "awq")
    assert packed.weights_bytes < 0.7 * plain.weights_bytes
    assert packed.step_s(decode_work(1, 1)) < plain.step_s(decode_work(1, 1))


def test_formats_at_the_end_take_the_stored_ones_place(tmp_path: Path) -> None:
    file = config_in(tmp_path, quantization_config=AWQ)
    found = estimator_of(f"h100,{file},weights=bf16,kv=fp8")
    assert (found.weights.name, found.kv.name) == ("bf16", "fp8")
    assert estimator_of(f"h100,{file}, kv=fp8").weights.name == "awq"
    assert parse_costs("h100,llama-3-8b,kv=fp8").pool_tokens == pytest.approx(
        2 * (parse_costs("h100,llama-3-8b").pool_tokens or 0), abs=2
    )


def test_a_path_may_hold_commas(tmp_path: Path) -> None:
    file = config_in(tmp_path / "a,b,weights=fp8,c")
    assert estimator_of(f"h100,{file}").weights.name == "bf16"


def test_this_machine_is_measured_and_all_of_it_is_expected() -> None:
    found = estimator_of("this,smollm2-135m")
    assert found.hardware.name == "this machine"
    assert found.efficiency == 1.0
    assert estimator_of("h100,smollm2-135m").efficiency == DEFAULT_EFFICIENCY


def test_a_report_says_what_the_costs_stood_for() -> None:
    text = "2xh100,llama-3-8b,weights=fp8"
    assert told_costs(text, estimator_of(text)) == (
        f"{text}: 8.03 B parameters of 1 bytes (fp8), KV bf16; 2 × H100 of 989 TFLOP/s and 3350 GB/s, 70% of it"
    )
    assert told_costs("linear", LinearLaw()) == "linear"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("h100,./no/model", "model './no/model' is a path, and nothing is there"),
        ("h999,llama-3-8b", "hardware 'h999' is not in the catalogue: H100, .*, or this: this machine, measured"),
        ("h100,llama-3-8b,weights=int3", "weight format 'int3' is not known: float32, bf16"),
        ("h100,llama-3-8b,kv=int4", "KV format 'int4' is not known: float32, bf16"),
        ("h100,llama-3-8b,kv=fp8,kv=bf16", "kv is given twice: leave one out"),
        ("h100,,kv=fp8", "expected linear, .*, got no model"),
        (",llama-3-8b", "expected linear, .*, got hardware ''"),
        ("h100,llama-3.1-405b", "give at least 11xh100, or smaller numbers, such as weights=int4 at the end"),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(rest: str, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^--costs {rest}: .*{said}"):
        parse_costs(rest)


def test_a_name_nobody_knows_is_answered_with_those_that_need_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"^--costs h100,no-such: .*; give a path, a name of the hub, or one of "):
        parse_costs("h100,no-such")


def test_the_cards_that_an_error_asks_for_are_enough_and_one_less_is_not() -> None:
    assert (parse_costs("11xh100,llama-3.1-405b").pool_tokens or 0) > 8192
    with pytest.raises(ConfigError, match="give at least 11xh100"):
        parse_costs("10xh100,llama-3.1-405b")


def test_simulate_runs_a_gguf_as_a_module(tmp_path: Path) -> None:
    """`python -m paceline` is the command."""
    command = [sys.executable, "-m", "paceline", "simulate", "--costs", f"l4,{resolve('smollm2-135m')}"]
    done = subprocess.run(
        [*command, "--requests", "5", "--workload", "32/8"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "as in the file" in (tmp_path / "simulate.jsonl").read_text(encoding="utf-8")
