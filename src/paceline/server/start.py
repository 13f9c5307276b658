"""Start and stop of the API process.

Order matters: the port is bound first (a port in use costs nothing), then the engine process starts and loads, and
only then are HTTP and text imported here, beside it. Requests are answered 503 until both sides have loaded.

First SIGTERM or SIGINT: drain. New requests get 503, running ones finish, for at most --shutdown-timeout; then the
process exits with 0. What has not finished by then ends with an error event. A second signal quits at once.
"""

import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from paceline.config import ServeConfig
from paceline.engine.child import EngineCommand, start_engine
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.text.model_text import ModelText

BACKLOG = 2048


def serve_until_stopped(config: ServeConfig, load_text: "Callable[[ServeConfig], ModelText] | None" = None) -> int:
    """Serve; returns the exit code. `load_text` replaces the loader of the model's own tokenizer and template.

    Raises ConfigError or CheckpointError when the start fails.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    listener = bind(config.host, config.port)
    command = EngineCommand(config.engine_factory, config.engine.to_json_mapping())
    child = start_engine(command)
    try:
        # Imported while the engine loads: these take as long as a small model does.
        from paceline.server.model_text import load_model_text
        from paceline.server.run import Started, run

        return run(config, Started(command, child, listener), load_text or load_model_text)
    finally:
        child.end()
        listener.close()


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """A signal before the event loop runs: end now, by way of every `finally`."""
    sys.exit(0)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ConfigError when the address can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it sees TCP: with it on, the first
    # tokens of an answer wait for the client's delayed acknowledgement, 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"can't listen on {host} port {port}: {reason}; choose another --host or --port") from None
    return listener
