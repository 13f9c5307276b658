"""Runs a command that must not outlive whoever started us: it ends when our standard input does.

The kernel closes a process's pipes however it dies, so even kill -9 of a command leaves no server behind.

    python -m paceline.offline.tied COMMAND ARGUMENT …
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

GRACE_S = 3.0


def main(command: Sequence[str]) -> int:
    """Run the command to its end or ours; its exit code."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=end_with_input, args=(child,), daemon=True).start()
    return child.wait()


def end_with_input(child: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of standard input; then end the child, kindly and then by force."""
    while os.read(0, 1024):
        pass
    child.terminate()
    time.sleep(GRACE_S)
    child.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
