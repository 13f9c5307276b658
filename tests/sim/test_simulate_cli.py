"""`paceline simulate` from the command line: the report is bench's, and is the same every time."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from paceline.bench.jsonl import read_result
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.fitted import FittedStepTime
from paceline.costs.speculation import Speculation
from paceline.costs.step import LinearLaw
from paceline.errors import ConfigError
from paceline.sim.costs_option import parse_costs
from paceline.sim.handoff import Link
from paceline.sim.policies import Policy
from paceline.sim.scenario import Scenario
from paceline.sim.sweeps import KNOBS, parse_sweep
from paceline.workload.arrivals import Poisson
from paceline.workload.distributions import Fixed
from paceline.workload.lengths import Lengths
from paceline.workload.workload import Workload

SOURCE = Path(__file__).parents[2] / "src"
WORKLOAD = Workload(Lengths(Fixed(8), Fixed(4)), Poisson(1.0))
SCENARIO = Scenario(WORKLOAD, Policy(), LinearLaw(), num_prefill=1, link=Link(1e9, 1e5))


def simulate(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "paceline.cli", "simulate", *arguments]
    environment = {"PYTHONPATH": str(SOURCE), "COLUMNS": "200"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_the_same_seed_gives_the_same_file_and_report(tmp_path: Path) -> None:
    flags = ["--requests", "60", "--workload", "64/16", "--itl", "20ms", "--sweep", "batch=4,8"]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        done = simulate(tmp_path / name, *flags)
        assert done.returncode == 0, done.stderr
    for file in ("simulate.jsonl", "simulate.html"):
        texts = [(tmp_path / name / file).read_bytes() for name in ("first", "second")]
        assert texts[0] == texts[1], file
    result = read_result(tmp_path / "first" / "simulate.jsonl")
    assert [point.label for point in result.header.points] == ["batch 4", "batch 8"]
    assert "Goodput against batch" in (tmp_path / "first" / "simulate.html").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--batch", "0"], "--batch must be between 1 and 65536, got 0"),
        (["--costs", "abacus"], "--costs 'abacus': expected linear"),
        (["--costs", "h100,llama-3-70b"], "10% of it kept as workspace: give at least 2xh100, or smaller numbers"),
        (["--costs", "h999,llama-3-8b"], "--costs h999,llama-3-8b: hardware 'h999' is not in the catalogue: H100"),
        (["--costs", "fitted:nowhere.json"], "--costs fitted:nowhere.json: No such file"),
        (["--prefill-replicas", "2"], "--prefill-replicas needs the bytes of a token's KV"),
        (["--sweep", "colour=red"], "expected KNOB=V1,V2,… with a knob of batch, chunk"),
        (["--sweep", "policy=magic"], "'magic' is not one of continuous, chunked, static, reserve-max"),
        (["--sweep", "replicas=0"], "--sweep (replicas) must be between 1 and 4096, got 0"),
        (["--sweep", "prefill-replicas=2"], "give --prefill-replicas as well"),
        (["--replay", "nowhere"], "recording nowhere: No such file"),
    ],
)
def test_a_mistake_gets_one_line_that_names_it(tmp_path: Path, flags: list[str], said: str) -> None:
    done = simulate(tmp_path, *flags)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_costs_are_a_law_a_datasheet_or_a_fit(tmp_path: Path) -> None:
    assert parse_costs("linear").step_time == LinearLaw()
    assert parse_costs("linear:fixed=1,decode=0.5").step_time == LinearLaw(fixed_s=1.0, decode_row_s=0.5)
    datasheet = parse_costs("8xh100,llama-3-70b")
    assert isinstance(datasheet.step_time, DatasheetEstimator)
    assert datasheet.step_time.num_cards == 8
    assert datasheet.max_context == 8192
    file = tmp_path / "fit.json"
    file.write_text('{"overhead_s":1,"token_s":0,"ridge_tokens":0,"context_token_s":0,"pair_s":0,"sampled_s":0}')
    assert parse_costs(f"fitted:{file}").step_time == FittedStepTime(1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    file.write_text('{"overhead_s":-1,"token_s":0,"ridge_tokens":0,"context_token_s":0,"pair_s":0,"sampled_s":0}')
    with pytest.raises(ConfigError):
        parse_costs(f"fitted:{file}")


@pytest.mark.parametrize("knob", KNOBS)
def test_every_knob_can_be_swept(knob: str) -> None:
    scenario = replace(SCENARIO, speculation=Speculation(0.7, 4, 0.1))
    values = {
        "draft": "8",
        "order": "first-come",
        "policy": "static",
        "router": "prefix",
        "ttft": "300ms",
        "itl": "20ms",
    }
    name, texts, scenarios = parse_sweep(f"{knob}={values.get(knob, '70')}", scenario)
    assert (name, len(texts), len(scenarios)) == (knob, 1, 1)
    assert scenarios[0] != scenario


def test_a_trace_is_sent_at_its_own_times(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"index": 0, "arrival_s": 0.0, "prompt": [[2, 64], [0, 10]], "output_tokens": 4}\n'
        '{"index": 1, "arrival_s": 3.0, "prompt": [[2, 64], [5, 10]], "output_tokens": 6}\n'
    )
    done = simulate(tmp_path, "--trace", trace.name, "--speed", "2")
    assert done.returncode == 0, done.stderr
    records = read_result(tmp_path / "simulate.jsonl").records
    assert [(record.intended_s, record.output_tokens, record.cached_tokens) for record in records] == [
        (0.0, 4, 0),
        (1.5, 6, 64),
    ]
