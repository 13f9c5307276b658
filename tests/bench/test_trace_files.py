"""Trace files that can't be read as one say what is missing, and none is cut short in silence."""

from pathlib import Path

import pytest

from paceline.bench import replay
from paceline.bench.endpoint import BenchError
from paceline.bench.replay import read_trace
from paceline.errors import PacelineError

LINE = '{"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [1]}\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is empty"),
        ('{"foo": 1}\n', "of no known format; each has a field of its own (Azure: ContextTokens, BurstGPT: "),
        (LINE.replace("5", "-5"), "field input_length must be a whole number from 0"),
        (LINE + LINE[:30], "line 2: not JSON"),
    ],
)
def test_a_broken_trace_is_named(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PacelineError) as raised:
        read_trace(path, None)
    assert complaint in raised.value.message


def test_a_trace_too_long_is_cut_only_where_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_REPLAYED", 3)
    path = tmp_path / "trace.jsonl"
    path.write_text(LINE * 4, encoding="utf-8")
    with pytest.raises(BenchError, match="holds more than 3 requests; say how many with --requests"):
        read_trace(path, None)
    assert len(read_trace(path, 2)) == 2
    with pytest.raises(BenchError, match=r"trace .*nowhere: No such file or directory$"):
        read_trace(tmp_path / "nowhere", None)
