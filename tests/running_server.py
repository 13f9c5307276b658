"""A server to talk to: a real process on a free port, with the scripted or the real engine in its real child process.

To run the tests of the server on another engine, replace what `launch` starts.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import httpx
import openai

from scripted_text import SCRIPT, VOCAB_SIZE

TESTS = Path(__file__).parent
READY = "ready on "


@dataclass
class RunningServer:
    """One server process."""

    process: "subprocess.Popen[str]"
    url: str
    summary: list[str]

    @property
    def port(self) -> int:
        return httpx.URL(self.url).port or 0

    def openai(self, **options: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=self.url, max_retries=0, timeout=20, **({"api_key": "none"} | options))

    def post(self, path: str, body: object, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/{path}", json=body, timeout=20, **options)

    def stop(self) -> int:
        """Ask it to end; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def launch(serve: dict[str, Any], engine: dict[str, Any], log: IO[str] | None = None) -> "subprocess.Popen[str]":
    """Start a server process without waiting for it; `log` takes its standard error."""
    engine = {"script": SCRIPT, "vocab_size": VOCAB_SIZE} | engine
    serve = {"port": 0, "shutdown_timeout_s": 5.0} | serve
    command = [sys.executable, str(TESTS / "serve_scripted.py"), json.dumps(serve), json.dumps(engine)]
    env = os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=env)


def serve_model(*arguments: str) -> RunningServer:
    """A ready server of a real model: `paceline serve` with these arguments, on a free port."""
    command = [sys.executable, "-m", "paceline.cli", "serve", *arguments, "--port", "0"]
    return wait_until_ready(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


def wait_until_ready(process: "subprocess.Popen[str]") -> RunningServer:
    """Read the start-up summary up to its last line."""
    assert process.stdout is not None
    summary = []
    for line in process.stdout:
        summary.append(line.rstrip("\n"))
        if line.startswith(READY):
            return RunningServer(process, line.removeprefix(READY).strip(), summary)
    raise AssertionError(f"the server ended with {process.wait()}: {summary}")
