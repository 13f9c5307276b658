"""Starts and ends one engine process. Standard library only, so that a child can load while its parent still imports.

A child is tied to us by the pipe at its standard input: when we close it, or die, it ends. Its socket lives in a
private directory, named here and bound later by the client; the directory goes as soon as the child has connected.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EXIT_GRACE_S = 2.0


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How to start an engine: the factory (``module:function``) and the mapping it is called with."""

    factory: str
    config: Mapping[str, Any]


class EngineChild:
    """One started engine process and the address it will connect to."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self.process = process
        self._directory = directory

    @property
    def address(self) -> str:
        """Where the client must bind."""
        return f"ipc://{self._directory}/engine"

    def remove_address(self) -> None:
        """Forget the socket's path; an established connection lives on without it."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def end(self) -> None:
        """Make the process go, kindly and then by force. Returns when it is gone; may be called twice."""
        assert self.process.stdin is not None, "the child is started with a pipe"
        self.process.stdin.close()
        try:
            self.process.wait(EXIT_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.remove_address()


def start_engine(command: EngineCommand) -> EngineChild:
    """Start the process and return at once; it loads by itself."""
    directory = Path(tempfile.mkdtemp(prefix="paceline-"))
    address = f"ipc://{directory}/engine"
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.engine.process", address, command.factory],
        stdin=subprocess.PIPE,
        start_new_session=True,
        # The BLAS that comes with NumPy would start threads that spin beside ours; we use none of it.
        env=os.environ | {"PYTHONUNBUFFERED": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert process.stdin is not None, "the child is started with a pipe"
    process.stdin.write(json.dumps(command.config).encode() + b"\n")
    process.stdin.flush()
    return EngineChild(process, directory)
