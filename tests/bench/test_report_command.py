"""`paceline bench report` on recorded results."""

from pathlib import Path

import pytest
from synthetic_results import hol, sweep
from typer.testing import CliRunner

from paceline.bench.cli import app
from paceline.bench.jsonl import write_result
from paceline.bench.report import NEEDS_BROWSER
from paceline.errors import ConfigError


def test_a_recorded_result_is_drawn_again_beside_it(tmp_path: Path) -> None:
    write_result(tmp_path / "sweep.jsonl", sweep())
    done = CliRunner().invoke(app, ["report", str(tmp_path / "sweep.jsonl")])
    assert done.exit_code == 0
    assert "concurrency 8 (knee)" in done.output
    assert "frontier-ttft" in (tmp_path / "sweep.html").read_text(encoding="utf-8")


def test_two_results_stand_side_by_side_under_their_names(tmp_path: Path) -> None:
    paths = []
    for name, stall_s in (("whole", 1.5), ("chunked", 0.06)):
        (tmp_path / name).mkdir()
        paths.append(tmp_path / name / "hol.jsonl")
        write_result(paths[-1], hol({"streams": stall_s}))
    done = CliRunner().invoke(app, ["report", *map(str, paths), "--out", str(tmp_path / "both.html")])
    assert done.exit_code == 0
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    for path in paths:
        assert f"{path}: streams" in page


def test_pngs_without_a_browser_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_result(tmp_path / "sweep.jsonl", sweep())
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["report", str(tmp_path / "sweep.jsonl"), "--png", str(tmp_path / "png")])
    assert done.exit_code == 0
    assert NEEDS_BROWSER in done.output


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"a": 1}\n', encoding="utf-8")
    done = CliRunner().invoke(app, ["report", str(tmp_path / "other.jsonl")])
    assert isinstance(done.exception, ConfigError)
    assert "line 1" in str(done.exception)
