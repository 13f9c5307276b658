"""Result files come back exactly, and a damaged one is refused with the line and the reason."""

from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_results import compare, hol, sweep

from paceline.bench.jsonl import ResultFileError, read_result, write_result
from paceline.bench.record import Outcome, TokenCount
from paceline.bench.result import Result

EVERYTHING = replace(
    hol({"chunked": 0.1}),
    records=(
        *hol({"chunked": 0.1}).records,
        replace(
            hol({"chunked": 0.1}).records[0],
            outcome=Outcome.REJECTED,
            token_count=TokenCount.ESTIMATE,
            event_times_s=(),
            event_tokens=(),
            read_sizes=(),
            cached_tokens=7,
            status=429,
            error='queue full: "später" <b>\n\u2028',
        ),
    ),
)


@pytest.mark.parametrize("result", [sweep(), compare(), EVERYTHING], ids=["sweep", "compare", "everything"])
def test_a_result_comes_back_as_it_was(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "result.jsonl"
    write_result(path, result)
    assert read_result(path) == result
    assert len(path.read_bytes().splitlines()) == 1 + len(result.records)
    assert list(tmp_path.iterdir()) == [path]


def damaged(tmp_path: Path, line: int, old: bytes, new: bytes) -> Path:
    path = tmp_path / "result.jsonl"
    write_result(path, hol({"chunked": 0.1}))
    lines = path.read_bytes().splitlines(keepends=True)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_bytes(b"".join(lines))
    return path


@pytest.mark.parametrize(
    ("line", "old", "new", "said"),
    [
        (1, b'"version":1', b'"version":2', "version is 2, this paceline reads 1"),
        (1, b'"experiment":"hol"', b'"experiment":"joy"', "experiment"),
        (3, b'"intended_s":0.01', b'"intended_s":"soon"', "intended_s"),
        (3, b'"sent_s":0.01', b'"sent_s":NaN', "line 3"),
        (3, b'"label":"chunked"', b'"label":"other"', "label 'other' is no point"),
        (3, b'"read_sizes":[1,', b'"read_sizes":[', "differ in length"),
        (3, b"}\n", b"\n", "line 3"),
    ],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: int, old: bytes, new: bytes, said: str) -> None:
    with pytest.raises(ResultFileError) as error:
        read_result(damaged(tmp_path, line, old, new))
    assert said in error.value.message
    assert f"line {line}" in error.value.message


def test_a_file_that_was_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "result.jsonl"
    write_result(path, sweep())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ResultFileError, match="cut off; remove the line"):
        read_result(path)


def test_a_missing_and_an_empty_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ResultFileError, match=r"nowhere\.jsonl"):
        read_result(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(ResultFileError, match="header"):
        read_result(tmp_path / "empty.jsonl")


def test_an_endless_line_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.bench.jsonl.MAX_LINE_BYTES", 1000)
    path = tmp_path / "result.jsonl"
    path.write_bytes(b" " * 5000)
    with pytest.raises(ResultFileError, match="line 1: longer than 1000 bytes"):
        read_result(path)
