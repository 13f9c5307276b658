"""Recordings from outside: every damage is named, with the field, what it may be and what it is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.sim.recording import RecordingError, read_recording
from paceline.sim.replay import PlanDiffersError, replay_all
from recorded_run import record_run

Lines = list[dict[str, object]]
HEADER, SUBMIT, STEP = 0, 1, 4


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    return record_run(tmp_path_factory.mktemp("recording") / "good.jsonl").read_text(encoding="utf-8")


def damaged(text: str, path: Path, change: Callable[[Lines], object]) -> Path:
    lines: Lines = [json.loads(line) for line in text.splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_the_recording_itself_replays(recorded: str, tmp_path: Path) -> None:
    [part] = replay_all(read_recording(damaged(recorded, tmp_path / "r.jsonl", lambda lines: None)))
    assert (part.num_requests, part.num_steps) == (3, 7)


@pytest.mark.parametrize(
    ("line", "field", "value", "complaint"),
    [
        (HEADER, "num_blocks", 10**13, "line 1: num_blocks must be 1 to 16777216, got 10000000000000"),
        (HEADER, "num_blocks", 0, "line 1: num_blocks must be 1 to 16777216, got 0"),
        (HEADER, "max_num_seqs", -1, "line 1: max_num_seqs must be 1 to 65536, got -1"),
        (HEADER, "max_step_tokens", 0, "line 1: max_step_tokens must be 1 to 1099511627776, got 0"),
        (HEADER, "block_size", 0, "line 1: block_size must be 1 to 4096, got 0"),
        (SUBMIT, "prompt", "", "line 2: prompt must be whole tokens of 4 bytes, one at least, got 0 bytes"),
        (SUBMIT, "prompt", "AAA=", "line 2: prompt must be whole tokens of 4 bytes, one at least, got 2 bytes"),
        (SUBMIT, "stop", {"max_tokens": -4}, "line 2: stop.max_tokens must be 0 to 1099511627776, got -4"),
        (SUBMIT, "num_sequences", 10**10, "line 2: num_sequences must be 1 to 65536, got 10000000000"),
        (SUBMIT, "arrival_s", -3.5, "line 2: arrival_s must be 0 to 1000000000000, got -3.5"),
        (STEP, "duration_s", -5.0, "line 5: duration_s must be 0 to 1000000000000, got -5.0"),
        (STEP, "ready_s", 1e300, "line 5: ready_s must be 0 to 1000000000000, got 1e+300"),
        (STEP, "sampled", [[2**40]], "line 5: sampled must hold token ids, 0 to 2147483647, got 1099511627776"),
        (STEP, "ends", [[9, "stop"]], "ends must be of one of the 1 rows in sampled, counted from 0, got row 9"),
        (STEP, "scores", [[0, 10**10]], "line 5: scores must be 0 to 16777216, got 10000000000"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_line(
    recorded: str, tmp_path: Path, line: int, field: str, value: object, complaint: str
) -> None:
    path = damaged(recorded, tmp_path / "r.jsonl", lambda lines: lines[line].update({field: value}))
    with pytest.raises(RecordingError) as raised:
        replay_all(read_recording(path))
    assert complaint in raised.value.message


def test_a_request_that_is_there_twice_is_damage(recorded: str, tmp_path: Path) -> None:
    path = damaged(recorded, tmp_path / "r.jsonl", lambda lines: lines.insert(SUBMIT, lines[SUBMIT]))
    with pytest.raises(RecordingError, match="request 0 is submitted again while it runs"):
        replay_all(read_recording(path))


def test_a_request_that_this_scheduler_would_refuse_is_a_difference(recorded: str, tmp_path: Path) -> None:
    path = damaged(recorded, tmp_path / "r.jsonl", lambda lines: lines[HEADER].update({"max_context": 10}))
    with pytest.raises(PlanDiffersError, match="request 0 was taken when recorded, this scheduler refuses it: "):
        replay_all(read_recording(path))
