"""The commands of this room as a user types them, and the lines of batch files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def start(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """`paceline …` without waiting for it."""
    command = [sys.executable, "-m", "paceline.cli", *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(SOURCE), "COLUMNS": "120"} | options.pop("env", {})
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, env=env, **(pipes | options))


def paceline(*arguments: object, text: str | None = None, **options: Any) -> "subprocess.CompletedProcess[str]":
    """`paceline …` to its end; `text` is its standard input."""
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    process = start(*arguments, stdin=stdin, **options)
    said, complaint = process.communicate(text, timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, said, complaint)


def line(custom_id: str, body: dict[str, Any], url: str = CHAT, method: str = "POST") -> dict[str, Any]:
    return {"custom_id": custom_id, "method": method, "url": url, "body": body}


def question(custom_id: str, model: str = "scripted", **fields: Any) -> dict[str, Any]:
    """A line that asks for a short greedy answer."""
    messages = [{"role": "user", "content": f"Question {custom_id}"}]
    body = {"model": model, "messages": messages, "max_tokens": 5, "temperature": 0}
    return line(custom_id, body | fields)


def write_lines(path: Path, lines: list[dict[str, Any] | str]) -> Path:
    """Objects as JSON, texts as they are."""
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return path


def read_answers(path: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in path.read_text().splitlines()]


def by_id(path: Path) -> dict[str | None, dict[str, Any]]:
    """The answers by custom_id; AssertionError when two have the same."""
    answers = read_answers(path)
    found = {answer["custom_id"]: answer for answer in answers}
    assert len(found) == len(answers), "a line was answered twice"
    return found


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
