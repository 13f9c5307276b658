"""`paceline bench` as a user types it."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mocks import RunningMock
from paceline.bench.jsonl import read_result
from paceline.bench.options import parse_seconds

Mocked = Callable[..., RunningMock]
SOURCE = Path(__file__).resolve().parents[2] / "src"


def paceline(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "COLUMNS": "80"}
    command = [sys.executable, "-m", "paceline.cli", "bench", *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_one_command_gives_a_table_a_file_and_a_report(mock: Mocked, tmp_path: Path) -> None:
    server = mock(first_s=0.02, gap_s=0.01, slots=2, is_precise=False)
    quick = ("--seconds", "1", "--warmup", "200ms", "--workload", "16/5", "--api-key", "secret")
    done = paceline(tmp_path, "sweep", server.url, "--concurrency", "1-4", *quick)
    assert done.returncode == 0, done.stderr
    assert "concurrency 4" in done.stdout
    assert "bench-sweep.html" in done.stdout
    result = read_result(tmp_path / "bench-sweep.jsonl")
    assert [point.concurrency for point in result.header.points] == [1, 2, 4]
    assert result.header.command.startswith(f"paceline bench sweep {server.url} --concurrency 1-4")
    assert result.header.server["version"] == "1.0"
    assert result.header.versions["aiohttp"]
    assert result.header.machine["cores"]
    assert "secret" not in (tmp_path / "bench-sweep.jsonl").read_text()
    assert "<html" in (tmp_path / "bench-sweep.html").read_text()[:200]


def test_ctrl_c_keeps_the_loads_that_were_held_to_their_end(mock: Mocked, tmp_path: Path) -> None:
    server = mock(first_s=0.02, gap_s=0.01, slots=8)
    quick = ("--seconds", "1", "--warmup", "200ms", "--workload", "16/5")
    command = [sys.executable, "-m", "paceline.cli", "bench", "sweep", server.url, "--concurrency", "1,2,3,4,5", *quick]
    env = {"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        while len(server.log()) < 25:  # the second load has begun
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert "interrupted: the" in err
    labels = [point.label for point in read_result(tmp_path / "bench-sweep.jsonl").header.points]
    assert 1 <= len(labels) < 5
    assert labels[0] == "concurrency 1"
    assert "bench-sweep.html" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "http://127.0.0.1:9"), "is the server running there?"),
        (("run", "ftp://x"), "expected a URL"),
        (("run", "--seconds", "soon"), "--seconds 'soon'"),
        (("run", "--seconds", "3", "--warmup", "3"), "leaves nothing"),
        (("run", "--workload", "nonsense"), "nonsense"),
        (("goodput", "--share", "1.5"), "--ttft|is the server running"),
        (("sweep", "--concurrency", "8-1", "--seconds", "9"), "first <= last"),
        (("sweep", "--rates", "fast"), "--rates 'fast'"),
        (("compare", "http://127.0.0.1:9"), "at least two"),
        (("replay", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_mistakes_are_answered_in_one_line(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = paceline(tmp_path, *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert any(part in done.stderr for part in message.split("|")), done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "expected"), [("300ms", 0.3), ("2s", 2.0), ("5m", 300.0), ("1.5", 1.5)])
def test_times_have_units(text: str, expected: float) -> None:
    assert parse_seconds("--x", text) == pytest.approx(expected)
