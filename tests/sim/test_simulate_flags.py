"""Flags of `paceline simulate`: a recorded run is shown as it was; what has no effect is not taken in silence."""

from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.bench.jsonl import read_result
from paceline.engine.journal import Step
from paceline.errors import PacelineError
from paceline.sim.cli import app
from paceline.sim.recording import read_recording
from recorded_run import record_run


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return record_run(tmp_path / "recorded.jsonl")


def test_a_recorded_run_is_shown_with_its_recorded_durations(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "shown.jsonl"
    arguments = ["--replay", str(recorded), "--out", str(out), "--itl", "5s"]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    result = read_result(out)
    assert result.header.server["costs"] == "recorded durations"
    durations_s = [line.duration_s for line in read_recording(recorded) if isinstance(line, Step)]
    [first] = [record for record in result.records if record.index == 0]
    gaps_s = [later - earlier for earlier, later in pairwise(first.event_times_s)]
    assert gaps_s == pytest.approx(durations_s[1:6], abs=1e-9)


def test_its_requests_meet_other_costs_where_those_are_given(recorded: Path, tmp_path: Path) -> None:
    out = tmp_path / "asked.jsonl"
    arguments = ["--replay", str(recorded), "--out", str(out), "--costs", "linear", "--batch", "1"]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0
    result = read_result(out)
    assert result.header.server["costs"] == "linear"
    [first] = [record for record in result.records if record.index == 0]
    assert first.event_times_s[1] - first.event_times_s[0] == pytest.approx(0.0055)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--replay R --batch 16", "--batch changes nothing here: --replay shows the run as it was; with --costs"),
        (
            "--replay R --sweep batch=1,2",
            "--sweep changes nothing here: --replay shows the run as it was; with --costs",
        ),
        ("--replay R --costs linear --workload 5/5", "--workload changes nothing here: --replay sends the requests"),
        ("--replay R --costs linear --requests 5", "--requests changes nothing here: --replay sends the requests"),
        ("--trace x --workload 5/5", "--workload changes nothing here: --trace has lengths and times of its own"),
        ("--shrink 2", "--shrink changes nothing here: it scales a --trace, and none is given"),
        ("--speed 0", "--speed changes nothing here: it scales a --trace, and none is given"),
        ("--transfer 50GB", "--transfer changes nothing here: it is what --prefill-replicas send over"),
        ("--prefill-replicas 1 --costs t4,llama-3.2-1b --transfer 0", "--transfer must be between 1 and "),
        ("--costs linear:fixed=0,prefill=0,decode=0", "linear law: a step must take some time, got 0 for all"),
        ("--out /nowhere/x.jsonl", "--out /nowhere/x.jsonl: there is no folder /nowhere; create it first"),
        ("--out /tmp", "--out /tmp: is a folder; name a file in it"),
    ],
)
def test_a_flag_without_effect_is_named_with_the_reason(line: str, complaint: str, recorded: Path) -> None:
    arguments = line.replace("R ", f"{recorded} ").split()
    with pytest.raises(PacelineError) as raised:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert raised.value.message.startswith(complaint)


def test_requests_that_can_never_be_served_are_explained(tmp_path: Path) -> None:
    arguments = ["--pool", "64", "--requests", "5", "--out", str(tmp_path / "x.jsonl")]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    shown = " ".join(result.stdout.split())
    assert "5 requests were refused; the first: the prompt has 256 tokens and max_tokens is 64" in shown
