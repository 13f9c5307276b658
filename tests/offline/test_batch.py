"""`paceline batch` as a user runs it: real servers, real processes, kills in the middle."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from commands import (
    COMPLETIONS,
    by_id,
    children,
    is_running,
    line,
    paceline,
    question,
    read_answers,
    start,
    write_lines,
)

from running_server import RunningServer, launch, wait_until_ready

MODEL = "smollm2-135m"


def completion(custom_id: str, prompt: str, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 8, "temperature": 0}
    return line(custom_id, body | fields, COMPLETIONS)


def test_every_line_has_its_answer_or_its_reason(smol: RunningServer, tmp_path: Path) -> None:
    """On a private server; answers are those of a served one. The model is the one that the first line names."""
    lines: list[dict[str, Any] | str] = [
        question("chat", MODEL),
        completion("text", "The capital of France is"),
        completion("hot", "a", temperature=1000),
        completion("elsewhere", "a", model="other"),
        "{ no json",
        "",
        line("no url", {}, "/v1/images"),
        question("streamed", MODEL, stream=True),
    ]
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    done = paceline("batch", source, target, "--kv-memory", "64MiB")
    assert done.returncode == 0, done.stderr
    assert "7 lines answered" in done.stderr
    assert "5 failed" in done.stderr
    answers = by_id(target)
    assert len({answer["id"] for answer in answers.values()}) == 7
    for custom_id, sent in (("chat", lines[0]), ("text", lines[1])):
        assert isinstance(sent, dict)
        response, served = answers[custom_id]["response"], smol.post(sent["url"].removeprefix("/v1/"), sent["body"])
        assert response["status_code"] == 200
        assert response["request_id"]
        assert response["body"]["choices"] == served.json()["choices"]
        assert answers[custom_id]["error"] is None
    assert answers["hot"]["response"]["status_code"] == 400
    assert "temperature" in answers["hot"]["error"]["message"]
    assert answers["hot"]["response"]["body"]["error"]["param"] == "temperature"
    assert answers["elsewhere"]["error"]["code"] == "model_not_found"
    assert answers[None]["error"]["message"].startswith("line 5 ")
    assert answers["no url"]["response"] is None
    assert "stream" in answers["streamed"]["error"]["message"]


def test_users_of_vllm_type_their_own_flags(scripted: RunningServer, tmp_path: Path) -> None:
    source, target = write_lines(tmp_path / "in.jsonl", [question("a")]), tmp_path / "out.jsonl"
    done = paceline("run-batch", "-i", source, "-o", target, "--url", scripted.url, "--dtype", "auto")
    assert done.returncode == 0, done.stderr
    assert "note: --dtype" in done.stderr
    assert by_id(target)["a"]["response"]["body"]["choices"][0]["message"]["content"] == " five, six, sev"


def test_killed_anywhere_no_line_is_lost_or_repeated(scripted: RunningServer, tmp_path: Path) -> None:
    """kill -9 at random moments, and now and then the last line cut off, as a machine that crashes would leave it."""
    lines: list[dict[str, Any] | str] = [question(f"q{index}", max_tokens=10) for index in range(400)]
    lines[100:100] = ["no json", "no json either"]
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    generator = random.Random(4)
    num_before, num_killed = 0, 0
    while num_killed < 8:
        batch = start("batch", source, target, "--url", scripted.url, "--concurrency", "16")
        deadline_s = time.monotonic() + 30
        while not target.exists() or target.read_bytes().count(b"\n") == num_before:
            assert time.monotonic() < deadline_s, "nothing is written"
            time.sleep(0.005)
        time.sleep(generator.uniform(0.0, 0.06))
        batch.kill()
        batch.communicate()
        num_killed += 1
        data = target.read_bytes()
        if generator.random() < 0.5:
            data = data[: -generator.randrange(1, 200)]
            target.write_bytes(data)
        num_before = data.count(b"\n")
    assert 8 <= num_before < 400, "the kills were not in the middle"
    done = paceline("batch", source, target, "--url", scripted.url)
    assert done.returncode == 0, done.stderr
    assert f"{num_before} were before" in done.stderr
    answers = read_answers(target)
    assert len(answers) == 402
    names = [answer["custom_id"] or answer["id"] for answer in answers]
    assert sorted(names) == sorted([f"q{index}" for index in range(400)] + ["batch_line_101", "batch_line_102"])
    texts = {answer["response"]["body"]["choices"][0]["message"]["content"] for answer in answers if answer["response"]}
    assert len(texts) == 1, "a half answer was taken for a whole one"
    again = paceline("batch", source, target, "--url", scripted.url)
    assert again.returncode == 0
    assert "all 402 lines were answered before" in again.stderr
    assert read_answers(target) == answers


def test_a_killed_batch_leaves_no_server_behind(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [completion(f"q{index}", "Once", max_tokens=400) for index in range(20)]
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    batch = start("batch", source, target, "--kv-memory", "64MiB")
    family: list[int] = []
    deadline_s = time.monotonic() + 30
    while len(family) < 3:  # the tie, the server, its engine
        assert time.monotonic() < deadline_s, f"processes: {family}"
        time.sleep(0.05)
        family = descendants(batch.pid)
    batch.send_signal(signal.SIGKILL)
    batch.communicate()
    while any(map(is_running, family)):
        assert time.monotonic() < deadline_s, f"still there: {[pid for pid in family if is_running(pid)]}"
        time.sleep(0.05)


def descendants(pid: int) -> list[int]:
    try:
        found = children(pid)
    except FileNotFoundError:
        return []
    return found + [one for child in found for one in descendants(child)]


def test_a_server_that_dies_ends_the_batch_and_the_next_run_goes_on(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [completion("quick", "a", max_tokens=1)]
    lines += [completion(f"q{index}", "Once", max_tokens=60, ignore_eos=True) for index in range(20)]
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    batch = start("batch", source, target, "--kv-memory", "64MiB", "--concurrency", "4")
    deadline_s = time.monotonic() + 30
    while not target.exists() or not target.read_bytes():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    tie = children(batch.pid)[0]
    for pid in children(tie):
        os.kill(pid, signal.SIGKILL)
    _, complaint = batch.communicate(timeout=60)
    assert batch.returncode == 2
    assert "the model's server ended" in complaint
    assert "Traceback" not in complaint
    assert 1 <= len(by_id(target)) < 21
    done = paceline("batch", source, target, "--kv-memory", "64MiB")
    assert done.returncode == 0, done.stderr
    answers = by_id(target)
    assert set(answers) == {"quick"} | {f"q{index}" for index in range(20)}
    assert all(answer["error"] is None for answer in answers.values())


def test_a_full_queue_is_waited_for(tmp_path: Path) -> None:
    server = wait_until_ready(launch({}, {"step_s": 0.002, "max_queued": 2}))
    try:
        lines: list[dict[str, Any] | str] = [question(f"q{index}", max_tokens=3) for index in range(8)]
        source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
        done = paceline("batch", source, target, "--url", server.url, "--concurrency", "8")
    finally:
        server.stop()
    assert done.returncode == 0, done.stderr
    assert all(answer["response"]["status_code"] == 200 for answer in by_id(target).values())
    assert len(by_id(target)) == 8


def test_ctrl_c_keeps_what_is_answered(scripted: RunningServer, tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [question(f"q{index}", max_tokens=20) for index in range(400)]
    source, target = write_lines(tmp_path / "in.jsonl", lines), tmp_path / "out.jsonl"
    batch = start("batch", source, target, "--url", scripted.url, "--concurrency", "4")
    while not target.exists() or not target.read_bytes():
        time.sleep(0.01)
    batch.send_signal(signal.SIGINT)
    _, complaint = batch.communicate(timeout=30)
    assert batch.returncode == 130
    assert "Traceback" not in complaint
    assert 1 <= len(by_id(target)) < 400


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("missing.jsonl", "out.jsonl"), "missing.jsonl"),
        (("in.jsonl", "in.jsonl"), "file of its own"),
        (("in.jsonl", "."), "file of its own"),
        (("in.jsonl", "no/out.jsonl"), "No such file"),
        (("in.jsonl", "out.jsonl", "--url", "http://a b"), "--url"),
        (("in.jsonl", "out.jsonl", "--url", "http://a", "--model", "b"), "--model"),
        (("in.jsonl", "out.jsonl", "--concurrency", "0"), "--concurrency"),
        (("in.jsonl", "out.jsonl", "--kv-memory", "some"), "--kv-memory"),
        (("in.jsonl", "out.jsonl", "--no-such-option"), "no-such-option"),
        (("--kv-memory", "1GiB", "in.jsonl", "out.jsonl"), "come first"),
        (("in.jsonl", "out.jsonl", "--model", "./none.gguf"), "nothing is there"),
        (("twice.jsonl", "out.jsonl"), "line 2"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    write_lines(tmp_path / "in.jsonl", [question("a", MODEL)])
    write_lines(tmp_path / "twice.jsonl", [question("a", MODEL), question("a", MODEL)])
    done = paceline("batch", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out.jsonl").exists() or not (tmp_path / "out.jsonl").read_text()
