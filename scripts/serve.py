"""What `make serve` runs: the server in the foreground, one chat when it is ready, then the server until Ctrl-C.

Owns the server process: however this script ends, the server is gone. `--once` ends after the answer.
"""

import argparse
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from first_chat import first_chat

MODEL = "smollm2-135m"
HOST = "127.0.0.1"
READY_TIMEOUT_S = 300.0
POLL_S = 0.05
PROBE_TIMEOUT_S = 5.0
STOP_TIMEOUT_S = 10.0
# A polite kill and a closed terminal take the same way out as Ctrl-C.
OTHER_ENDS = (signal.SIGTERM, signal.SIGHUP)


def port_is_free(port: int) -> bool:
    """Whether a server could listen there. Asked first, so that we never chat with somebody else's server."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def is_ready(url: str) -> bool:
    """Whether the server says so."""
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=PROBE_TIMEOUT_S):
            return True
    except (urllib.error.URLError, OSError):
        return False


def wait_until_ready(server: "subprocess.Popen[bytes]", url: str) -> None:
    """Return when the server is ready. Raises OSError when it ends instead, or takes too long."""
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while not is_ready(url):
        if server.poll() is not None:
            raise OSError(f"the server ended with status {server.returncode} before it was ready")
        if time.monotonic() > deadline_s:
            raise OSError(f"the server was not ready within {READY_TIMEOUT_S:.0f} s")
        time.sleep(POLL_S)


def stop(server: "subprocess.Popen[bytes]") -> None:
    """Make the server go, kindly and then by force."""
    if server.poll() is None:
        server.terminate()
    try:
        server.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def serve(port: int, ends_after_answer: bool) -> int:
    """Run the server and chat with it; the exit status."""
    url = f"http://{HOST}:{port}"
    command = [Path(sys.executable).with_name("paceline"), "serve", MODEL, "--host", HOST, "--port", str(port)]
    # A session of its own: Ctrl-C reaches the server through us, once, and so ends it gracefully.
    server = subprocess.Popen(command, start_new_session=True)
    try:
        wait_until_ready(server, url)
        first_chat(url)
        if ends_after_answer:
            return 0
        print(f"Serving {MODEL} on {url}. Ctrl-C ends it.", flush=True)
        return server.wait()
    except (OSError, EOFError) as error:
        print(f"make serve: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        # A second Ctrl-C must not end us before the server is gone.
        for number in (signal.SIGINT, *OTHER_ENDS):
            signal.signal(number, signal.SIG_IGN)
        stop(server)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Serve the default model and chat with it once.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--once", action="store_true", help="end after the answer")
    options = parser.parse_args()
    for number in OTHER_ENDS:
        signal.signal(number, signal.default_int_handler)
    if not port_is_free(options.port):
        print(f"make serve: port {options.port} is taken; choose another: make serve PORT=8001", file=sys.stderr)
        return 1
    return serve(options.port, options.once)


if __name__ == "__main__":
    sys.exit(main())
