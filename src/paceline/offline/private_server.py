"""A server for one command: `paceline serve` on a free port of this machine, with a key that nobody else has.

It is the real server, so a batch or a chat can do whatever a client of it can. It ends with us (`tied.py`), and Ctrl-C
reaches us alone, who decide.
"""

import os
import secrets
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from paceline.errors import ConfigError, UnavailableError
from paceline.offline.endpoint import Endpoint, parse_url

READY = "ready on "
LAST_LINES = 20
END_S = 10.0
RESTART_AFTER_S = 5.0
# Before the user's own options, which win. Nobody waits for answers of a server that is told to stop.
PRIVATE = ("--host", "127.0.0.1", "--port", "0", "--shutdown-timeout", "0")


@dataclass(frozen=True, slots=True)
class PrivateServer:
    """A ready server. `last_lines`: what it printed last, for the message when it dies."""

    endpoint: Endpoint
    process: "subprocess.Popen[str]"
    last_lines: deque[str]

    def check_alive(self) -> None:
        """Raise UnavailableError when the process has ended."""
        if self.process.poll() is not None:
            raise UnavailableError(f"the model's server ended: {reason(self.last_lines)}", RESTART_AFTER_S)


@contextmanager
def private_server(model: str, arguments: Sequence[str] = ()) -> Iterator[PrivateServer]:
    """Serve `model` with these options of `paceline serve`. Raises ConfigError, with the server's own words, if it
    does not start.
    """
    key = secrets.token_urlsafe(24)
    serve = [sys.executable, "-m", "paceline.cli", "serve", model, *PRIVATE, *arguments]
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.offline.tied", *serve],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env=os.environ | {"PACELINE_API_KEY": key},
    )
    assert process.stdin is not None
    try:
        last_lines = deque[str](maxlen=LAST_LINES)
        url = wait_until_ready(process, last_lines)
        yield PrivateServer(Endpoint(url, key), process, last_lines)
    finally:
        process.stdin.close()
        process.wait(END_S)


def wait_until_ready(process: "subprocess.Popen[str]", last_lines: deque[str]) -> str:
    """Read the start-up summary up to its last line, which names the address; the rest is read in the background."""
    assert process.stdout is not None
    for line in process.stdout:
        last_lines.append(line.strip())
        if line.startswith(READY):
            threading.Thread(target=keep_reading, args=(process, last_lines), daemon=True).start()
            return parse_url(line.removeprefix(READY).strip())
    process.wait()
    raise ConfigError(f"the model's server did not start: {reason(last_lines)}")


def keep_reading(process: "subprocess.Popen[str]", last_lines: deque[str]) -> None:
    """Take what the server prints, so that it never waits for a reader."""
    assert process.stdout is not None
    for line in process.stdout:
        last_lines.append(line.strip())


def reason(last_lines: deque[str]) -> str:
    """The last words of a server that ended."""
    said = [line for line in last_lines if line]
    return said[-1].removeprefix("paceline: ").removeprefix("Error: ") if said else "it said nothing"
