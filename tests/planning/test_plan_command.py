"""`paceline plan` as users run it: tables, JSON, pages, models from files, errors."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from paceline.costs.fitted import FittedStepTime
from paceline.costs.step import decode_work
from paceline.errors import ConfigError, PacelineError
from paceline.planning.cli import fleet_app, speculation_app
from paceline.planning.options import moments, parse_rate
from paceline.planning.speculation import where_it_ends
from published_configs import MISTRAL_SMALL

NODE = "llama-3-70b --hardware H100 --gpus 8 --rate 50 --input 1000 --output 256 --ttft 1s --itl 30ms --price 2.5"


def planned(line: str) -> dict[str, object]:
    result = CliRunner().invoke(fleet_app, [*line.split(), "--json"], catch_exceptions=False)
    assert result.exit_code in (0, 1)
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def complaint_about(app: Typer, line: str) -> str:
    with pytest.raises(PacelineError) as raised:
        CliRunner().invoke(app, line.split(), catch_exceptions=False)
    return raised.value.message


def test_the_worked_plan_is_printed_with_its_reasons() -> None:
    result = CliRunner().invoke(fleet_app, f"{NODE} --pools --turns 2".split(), catch_exceptions=False)
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert "3 replicas of 8 × H100 (24 cards), each at 68% of its capacity, 1.3 per 1M tokens" in shown
    assert "with 188 sequences TPOT = 11.2 ms + 188 × 25.5 ms / 256 = 29.9 ms; one more breaks: TPOT target" in shown
    assert "as pools: 2 prefill + 1 decode replicas (24 cards)" in shown
    assert "prompts of 500 tokens instead" in shown
    assert re.search(r"2 2,512 10\.3 ms 16\.8 ms 54\.3 GB 579", shown)


def test_json_has_the_same_answer() -> None:
    found = planned(NODE)
    fleet = found["plan"]["fleet"]  # type: ignore[index]
    assert (fleet["num_replicas"], fleet["num_cards"]) == (3, 24)
    assert fleet["price_per_million_tokens"] == pytest.approx(2.5 * 24 / (3600 * 12_800) * 1e6)
    assert found["costs"] == "datasheet"
    assert found["memory"]["num_sequences"] == 1_159  # type: ignore[index]


def test_the_page_draws_both_plots_and_reads_by_program(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    result = CliRunner().invoke(fleet_app, [*NODE.split(), "--html", str(page)], catch_exceptions=False)
    assert result.exit_code == 0
    text = page.read_text(encoding="utf-8")
    [figures] = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', text, re.S)
    tpot, throughput = json.loads(figures)
    assert [tpot["id"], throughput["id"]] == ["plan-tpot", "plan-throughput"]
    assert [trace["name"] for trace in tpot["traces"]] == ["decode alone", "with prefill's share", "target"]
    assert {label["text"] for label in tpot["layout"]["annotations"]} == {
        "ridge point",
        "memory",
        "capacity",
        "this load",
    }
    [plan] = re.findall(r'<script type="application/json" id="plan">(.*?)</script>', text, re.S)
    assert json.loads(plan)["plan"]["fleet"]["num_replicas"] == 3
    assert "https://" not in text.split("<script>")[0]


def test_a_plan_that_does_not_fit_says_so_and_fails() -> None:
    result = CliRunner().invoke(fleet_app, "mixtral-8x7b --gpus 1".split(), catch_exceptions=False)
    assert result.exit_code == 1
    assert result.stdout.startswith("does not fit: weights 93.4 GB (87 GiB)")
    # Without --gpus the fewest cards that hold it are taken.
    assert planned("mixtral-8x7b")["cards_per_replica"] == 2
    assert planned("mixtral-8x7b -q int4")["cards_per_replica"] == 1
    assert planned("llama-3-70b --input 8000 --output 192 --sessions 200")["cards_per_replica"] == 16


def test_the_page_of_a_refused_plan_says_why_and_what_would_help(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    result = CliRunner().invoke(fleet_app, ["mixtral-8x7b", "--gpus", "1", "--html", str(page)])
    assert result.exit_code == 1
    text = page.read_text(encoding="utf-8")
    assert 'role="alert"' in text
    assert "does not fit: weights 93.4 GB (87 GiB)" in text
    assert "2 cards a replica instead of 1" in text
    assert '<script type="application/json" id="figures">[]</script>' in text


def test_figures_can_be_given_instead_of_the_catalogues() -> None:
    found = planned("llama-3-8b --hardware L4 --flops 200T --bandwidth 1TB/s --memory 80GiB")
    hardware = found["hardware"]
    assert isinstance(hardware, dict)
    assert (hardware["flops_per_s"], hardware["bytes_per_s"], hardware["memory_bytes"]) == (200e12, 1e12, 80 * 2**30)
    assert hardware["source"].endswith("; --flops; --bandwidth; --memory")
    with pytest.raises(ConfigError, match=r"--flops must be a rate such as 989T or 3\.35TB/s, got 'fast'"):
        parse_rate("--flops", "fast")


def test_a_fitted_step_time_takes_the_datasheets_place(tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    law = FittedStepTime(4e-4, 6.4e-4, 8.0, 4e-7, 1.5e-8, 8e-5)
    costs.write_text(json.dumps(asdict(law)), encoding="utf-8")
    line = f"smollm2-135m --hardware L4 --input 200 --output 100 --itl 50ms --fitted {costs}"
    found = planned(line)
    batch = found["plan"]["capacity"]["batch"]  # type: ignore[index]
    step_s = found["plan"]["capacity"]["decode_step_s"]  # type: ignore[index]
    assert found["costs"] == "fitted"
    assert step_s == pytest.approx(law.step_s(decode_work(batch, 250)))
    shown = " ".join(CliRunner().invoke(fleet_app, line.split(), catch_exceptions=False).stdout.split())
    assert "step times fitted to recorded steps" in shown


def test_lengths_of_a_workload_become_means_and_a_spread() -> None:
    num_input, num_output, variation = moments("uniform:low=32,high=256/64")
    assert num_input == 144
    assert num_output == 64
    # Uniform on [32, 256]: variance 224²/12 over the squared mean.
    assert variation == pytest.approx(224**2 / 12 / 144**2, rel=0.01)


def test_a_config_file_and_a_gguf_are_models_too(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(MISTRAL_SMALL), encoding="utf-8")
    for name in (str(config), str(tmp_path)):
        found = planned(name)
        assert found["memory"]["kv_bytes_per_token"] == 163_840  # type: ignore[index]
        assert found["model"]["num_params"] == pytest.approx(23.57e9, rel=0.002)  # type: ignore[index]
    stored = {"quant_method": "awq", "bits": 4, "group_size": 128}
    config.write_text(json.dumps(MISTRAL_SMALL | {"quantization_config": stored}), encoding="utf-8")
    assert planned(str(config))["weights"]["name"] == "awq"  # type: ignore[index]
    assert planned(f"{config} -q bf16")["weights"]["name"] == "bf16"  # type: ignore[index]


def test_speculation_prints_the_best_and_where_it_ends() -> None:
    result = CliRunner().invoke(speculation_app, ["--alpha", "0.8", "--cost", "0.1"], catch_exceptions=False)
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert shown.startswith("6 drafts a pass: 2.47 times as fast")
    assert re.search(r"pays up to \d+ sequences; beyond, verifying 7 tokens a row", shown)
    assert "tokens a pass, drawn" in shown
    same = CliRunner().invoke(speculation_app, ["--alpha", "0.8", "--cost", "0.1"], catch_exceptions=False)
    assert same.stdout == result.stdout


def test_speculation_as_json_and_page(tmp_path: Path) -> None:
    page = tmp_path / "speculation.html"
    arguments = ["--alpha", "0.9", "--cost", "0.15", "--drafts", "4", "--no-check", "--json", "--html", str(page)]
    result = CliRunner().invoke(speculation_app, arguments, catch_exceptions=False)
    found = json.loads(result.stdout)
    assert (found["chosen"]["num_drafts"], found["best"]["num_drafts"]) == (4, 8)
    assert found["sampled"] == []
    assert '"speculation-surface"' in page.read_text(encoding="utf-8")


def test_where_verifying_costs_too_much_for_one_sequence_no_batch_pays() -> None:
    sums = [where_it_ends(number, 4) for number in (None, 0, 210)]
    assert sums[0].startswith("pays at every batch")
    assert sums[1].startswith("pays at no batch: even for one sequence verifying 5 tokens a row is more arithmetic")
    assert sums[2].startswith("pays up to 210 sequences; beyond, verifying 5 tokens a row is more arithmetic")


def test_drafts_that_do_not_pay_are_said_so() -> None:
    result = CliRunner().invoke(speculation_app, ["--alpha", "0.3", "--cost", "0.5", "--no-check"])
    shown = " ".join(result.stdout.split())
    assert "no number of drafts pays at α 0.3 and cost 0.5: one gives 1.3 tokens for 1.5 passes" in shown


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("llama-3-70b --hardware H999", "hardware 'H999' is not in the catalogue: H100, "),
        ("llama-3-70b -q int3", "weight format 'int3' is not known: float32, bf16, "),
        ("llama-3-70b --ttft soon", "--ttft 'soon': expected a time such as 300ms, 2s or 5m"),
        ("./no/model", "model './no/model' is a path, and nothing is there"),
        ("llama-3-70b --output 0", "load: output_tokens must be 1 to 16777216, got 0"),
        ("llama-3-70b --utilization 1.5", "margins: utilization must be above 0 and at most 1, got 1.5"),
        ("llama-3-70b --efficiency 0", "efficiency must be above 0 and at most 1, got 0.0"),
        ("llama-3-70b --rate 1e300", "load: rate_per_s must be above 0 and at most 1,000,000,000, got 1e+300"),
        ("llama-3-70b --pools", "--pools needs --rate: how many replicas of each kind follows from the load"),
        ("smollm2-135m --pools --rate 1 --hardware this", "--pools: this machine has no link to others on which KV"),
        ("llama-3-70b --workload 10/5 --input 7", "--workload 10/5 has both lengths: leave out --input and --output"),
        ("llama-3-70b --fitted /nowhere.json", "--fitted /nowhere.json: No such file or directory"),
        ("llama-3-70b --fitted x --efficiency 0.5", "--efficiency changes nothing with --fitted"),
        ("llama-3-70b --html /nowhere/x.html", "--html /nowhere/x.html: No such file or directory"),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(line: str, complaint: str) -> None:
    assert complaint_about(fleet_app, line).startswith(complaint)


def test_a_name_nobody_knows_is_answered_with_those_that_need_no_file() -> None:
    with pytest.raises(PacelineError, match="give a path, a name of the hub, or one of llama-2-7b, llama-2-13b"):
        CliRunner().invoke(fleet_app, ["no-such-model"], catch_exceptions=False)
    with pytest.raises(PacelineError, match="or this: this machine, measured; of another card give --flops"):
        CliRunner().invoke(fleet_app, ["llama-3-8b", "--hardware", "H999"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--gpus 1", "llama-3-70b does not fit: weights 141 GB (131 GiB) and the KV of one sequence"),
        ("--context 100000", "--context must be 1 to 8,192, the context of llama-3-70b, got 100,000"),
        ("--hardware H999", "hardware 'H999' is not in the catalogue: H100, "),
        ("--alpha 1.2", "acceptance rate must be from 0 to 1, got 1.2"),
    ],
)
def test_speculation_on_what_cannot_be_served_is_refused(line: str, complaint: str) -> None:
    assert complaint_about(speculation_app, line).startswith(complaint)


def test_pools_that_meet_no_target_are_said_so() -> None:
    # A prompt of 107 MB of KV takes 1.7 ms of an L4's link in float32, more than a decode step of so small a model.
    line = "smollm2-135m --hardware L4 --input 4000 --output 16 --ttft 16ms --pools --kv-cache-dtype float32 --rate 0.1"
    result = CliRunner().invoke(fleet_app, line.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.stdout
    assert "as pools: the TTFT target is out of reach" in " ".join(result.stdout.split())


def test_a_mistake_is_one_line_in_the_terminal() -> None:
    command = [sys.executable, "-m", "paceline.cli", "plan", "llama-3-70b", "--hardware", "H999"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("paceline: hardware 'H999' is not in the catalogue: H100, ")
    assert len(done.stderr.splitlines()) == 1


def test_output_tokens_are_those_of_the_load() -> None:
    """Not those of one whole sequence, which is the smallest batch there is."""
    line = "llama-3.2-1b --hardware T4 --rate 0.1 --input 2000 --output 16"
    result = CliRunner().invoke(fleet_app, line.split(), catch_exceptions=False)
    assert re.search(r"output tokens/s +1\.6 ", result.stdout)


def test_turns_end_at_the_context_and_say_when_sessions_no_longer_fit() -> None:
    line = "llama-3-8b --hardware L4 --input 1000 --output 256 --turns 9"
    shown = " ".join(CliRunner().invoke(fleet_app, line.split(), catch_exceptions=False).stdout.split())
    assert "turn 7 would have 8,792 tokens, more than the context of llama-3-8b, 8,192" in shown
    assert "from turn 2 on they no longer fit in memory together" in shown
    assert len(planned(line)["turns"]) == 6  # type: ignore[arg-type]
