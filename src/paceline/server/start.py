"""Start and stop of the API process.

Order matters: the port is bound first (a port in use costs nothing), then the engine process starts and loads, and
only then are HTTP and text imported here, beside it. Requests are answered 503 until both sides have loaded.

First SIGTERM or SIGINT: drain. New requests get 503, running ones finish, for at most --shutdown-timeout; then the
process exits with 0. What has not finished by then ends with an error event. A second signal quits at once, with 130.
"""

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from paceline.config import ServeConfig
from paceline.engine.child import EngineCommand, start_engine
from paceline.server.listen import allow_descriptors, listening

if TYPE_CHECKING:
    from paceline.text.model_text import ModelText


def serve_until_stopped(config: ServeConfig, load_text: "Callable[[ServeConfig], ModelText] | None" = None) -> int:
    """Serve; returns the exit code. `load_text` replaces the loader of the model's own tokenizer and template.

    Raises ConfigError or CheckpointError when the start fails.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    allow_descriptors()
    with listening(config.host, config.port, config.uds) as listener:
        command = EngineCommand(config.engine_factory, config.engine.to_json_mapping())
        child = start_engine(command)
        try:
            # Imported while the engine loads: these take as long as a small model does.
            from paceline.server.model_text import load_model_text
            from paceline.server.run import Started, run

            return run(config, Started(command, child, listener), load_text or load_model_text)
        finally:
            child.end()


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """A signal before the event loop runs: end now, by way of every `finally`."""
    sys.exit(0)
