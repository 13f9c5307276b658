"""Batch lines and files by themselves: what is a request, what is an answer, what a cut-off file becomes."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from commands import SOURCE, line, question, write_lines

from paceline.errors import ConfigError
from paceline.offline.batch_files import OutputFile, read_contents, read_requests
from paceline.offline.batch_ledger import Ledger
from paceline.offline.batch_lines import (
    MAX_LINE_BYTES,
    BadLine,
    BatchRequest,
    answer_to_bad_line,
    answer_to_request,
    parse_line,
)

GOOD = question("a")


def encoded(value: object) -> bytes:
    return json.dumps(value).encode()


def test_a_good_line_is_sent_as_it_stands() -> None:
    body = b'{"messages": [],  "model": "m", "temperature": 0.10}'
    data = b'{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "extra": 1, "body": ' + body + b"}\n"
    assert parse_line(3, data) == BatchRequest(3, "a", "/v1/chat/completions", body, "m")


@pytest.mark.parametrize(
    ("data", "custom_id", "said"),
    [
        (b"{", None, "line 3"),
        (b"[1, 2]", None, "object"),
        (b"\xff\xfe", None, "line 3"),
        (b"[" * 100_000, None, "line 3"),
        (encoded({"method": "POST"}), None, "custom_id"),
        (encoded(GOOD | {"custom_id": 7}), None, "custom_id"),
        (encoded({"custom_id": "a"}), "a", "method"),
        (encoded(GOOD | {"method": "GET"}), "a", "'GET'"),
        (encoded(GOOD | {"url": "/v1/images"}), "a", "'/v1/images'"),
        (encoded(GOOD | {"body": "text"}), "a", "object"),
        (encoded(GOOD | {"body": {"stream": True}}), "a", "stream"),
        (b'{"custom_id": "a", "x": "' + b"x" * MAX_LINE_BYTES, None, "longer"),
    ],
)
def test_a_bad_line_keeps_its_id_and_has_a_reason(data: bytes, custom_id: str | None, said: str) -> None:
    bad = parse_line(3, data)
    assert isinstance(bad, BadLine)
    assert bad.custom_id == custom_id
    assert said in bad.reason
    answer = json.loads(msgspec.json.encode(answer_to_bad_line(bad)))
    assert answer["custom_id"] == custom_id
    assert answer["response"] is None
    assert answer["error"]["message"] == bad.reason


def test_an_answer_is_one_line_with_its_numbers_untouched() -> None:
    request = parse_line(1, encoded(GOOD))
    assert isinstance(request, BatchRequest)
    body = b'{\n  "a": 0.10,\n "big": 123456789012345678901234567890\n}'
    data = msgspec.json.encode(answer_to_request(request, 200, "req-1", body))
    assert b'"body":{"a":0.10,"big":123456789012345678901234567890}' in data
    assert b"\n" not in data
    assert json.loads(data)["error"] is None


def test_an_answer_that_is_no_json_is_an_error() -> None:
    request = parse_line(1, encoded(GOOD))
    assert isinstance(request, BatchRequest)
    answer = answer_to_request(request, 200, "", b"<html>busy</html>")
    assert answer.response is not None
    assert bytes(answer.response.body) == b"null"
    assert answer.error is not None
    assert "<html>busy" in answer.error.message


def test_an_overlong_line_hides_none_after_it(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    overlong = b"x" * (3 * MAX_LINE_BYTES)
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join([encoded(GOOD), b"", overlong, encoded(line("b", {}))]))
    first, bad, last = read_requests(path)
    assert (first.number, first.custom_id) == (1, "a")
    assert isinstance(bad, BadLine)
    assert bad.number == 3
    assert (last.number, last.custom_id) == (4, "b")


@pytest.mark.parametrize("custom_id", ["a", "", "日本", "a\x00b", "x" * 10_000])
def test_two_lines_with_one_id_are_refused_by_number(custom_id: str, tmp_path: Path) -> None:
    lines = [question("first"), question(custom_id), "no json", "no json", question(custom_id)]
    path = write_lines(tmp_path / "in.jsonl", lines)
    with closing(Ledger()) as ledger, pytest.raises(ConfigError, match=r"of line 5 is that of line 2"):
        read_contents(path, ledger)


def ledger_of(path: Path) -> Ledger:
    ledger = Ledger()
    read_contents(path, ledger)
    return ledger


def answers_to(path: Path) -> bytes:
    requests = [request for request in read_requests(path) if isinstance(request, BatchRequest)]
    answers = [answer_to_request(request, 200, "r", b'{"text": "caf\xc3\xa9"}') for request in requests]
    return b"".join(msgspec.json.encode(answer) + b"\n" for answer in answers)


def test_wherever_an_output_was_cut_off_whole_lines_stand_and_the_rest_goes(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [question("a"), question("b"), question("c")])
    whole = answers_to(source)
    target = tmp_path / "out.jsonl"
    for size in range(len(whole) + 1):
        target.write_bytes(whole[:size])
        num_lines = whole[:size].count(b"\n")
        with closing(ledger_of(source)) as ledger, OutputFile(target) as output:
            assert output.resume(ledger) == num_lines
            assert [ledger.is_answered(number) for number in (1, 2, 3)] == [num_lines >= n for n in (1, 2, 3)]
            output.append([b"next\n"])
        assert target.read_bytes() == b"".join(whole.splitlines(keepends=True)[:num_lines]) + b"next\n"


@pytest.mark.parametrize(
    "content", ["my notes", "my notes\n", '{"id": 7}\n', '{"id":"batch_req_x","custom_id":"zz"}\n']
)
def test_a_file_that_is_no_output_of_this_input_stays_as_it_is(content: str, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in.jsonl", [question("a")])
    target = tmp_path / "out.jsonl"
    target.write_text(content)
    with closing(ledger_of(source)) as ledger, OutputFile(target) as output, pytest.raises(ConfigError, match="line 1"):
        output.resume(ledger)
    assert target.read_text() == content


def test_two_batches_do_not_write_one_file(tmp_path: Path) -> None:
    with OutputFile(tmp_path / "out.jsonl"), pytest.raises(ConfigError, match="another batch"):
        OutputFile(tmp_path / "out.jsonl")


def test_a_line_that_was_corrected_is_asked_again(tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_lines(source, [question("a"), "no json"])
    bad = parse_line(2, b"no json")
    assert isinstance(bad, BadLine)
    target.write_bytes(msgspec.json.encode(answer_to_bad_line(bad)) + b"\n")
    with closing(ledger_of(source)) as ledger, OutputFile(target) as output:
        assert output.resume(ledger) == 1
        assert ledger.is_answered(2)
    write_lines(source, [question("a"), question("b")])
    with closing(ledger_of(source)) as ledger, OutputFile(target) as output:
        assert output.resume(ledger) == 0
        assert not ledger.is_answered(2)


MEASURE = """
import resource, sys
from pathlib import Path
from paceline.offline.batch_files import OutputFile, read_contents, read_requests
from paceline.offline.batch_ledger import Ledger
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
ledger = Ledger()
contents = read_contents(Path(sys.argv[1]), ledger)
num_open = sum(not ledger.is_answered(request.number) for request in read_requests(Path(sys.argv[1])))
print(contents.num_lines, num_open, peak() - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    with path.open("wb") as file:
        for index in range(100_000):
            file.write(encoded(question(f"request-{index:040}", user="x" * 500)) + b"\n")
    assert path.stat().st_size > 60e6
    env = {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True, env=env)
    num_lines, num_open, grown_kib = map(int, done.stdout.split())
    assert num_lines == num_open == 100_000
    assert grown_kib < 20_000
