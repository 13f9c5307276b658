"""What the quickstart shows works as it is printed, but for the port."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from running_server import RunningServer

QUICKSTART = Path(__file__).parents[2] / "docs" / "quickstart.md"
PRINTED_URL = "http://127.0.0.1:8000/v1"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", QUICKSTART.read_text(), re.DOTALL)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_streaming_client(smol: RunningServer) -> None:
    code = next(block for block in blocks("python") if "stream=True" in block)
    assert PRINTED_URL in code
    *_, tokens = run(code.replace(PRINTED_URL, smol.url)).splitlines()
    assert re.fullmatch(r"\d+ tokens", tokens)


def test_generation_in_a_script() -> None:
    code = next(block for block in blocks("python") if "import LLM" in block)
    assert len(run(code).split()) > 5


def test_the_first_request(smol: RunningServer) -> None:
    command = shlex.split(next(block for block in blocks("sh") if block.startswith("curl")))
    assert command[1].startswith(PRINTED_URL)
    body = json.loads(command[command.index("-d") + 1])
    answer = smol.post(command[1].removeprefix(f"{PRINTED_URL}/"), body).json()
    assert answer["choices"][0]["message"]["content"]
