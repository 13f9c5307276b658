"""What a scripted engine gets for what a client sends: posts a body, reads the engine's log of requests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from paceline.core.request import Request
from paceline.engine.messages import Submit
from running_server import RunningServer, launch, wait_until_ready

CHAT = {"model": "scripted", "messages": [{"role": "user", "content": "a"}]}
CONTEXT = 64
Asker = Callable[..., Request]


@contextmanager
def asking(folder: Path, **serve: Any) -> Iterator[Asker]:
    """A server whose `ask(path, **fields)` returns the request that its engine got."""
    log = folder / "log"
    server = wait_until_ready(launch({"seed": 7} | serve, {"requests_log": str(log), "context": CONTEXT}))
    yield lambda path="chat/completions", **fields: asked(server, log, path, fields)
    assert server.stop() == 0


def asked(server: RunningServer, log: Path, path: str, fields: dict[str, Any]) -> Request:
    response = server.post(path, (CHAT if path.startswith("chat") else {"model": "scripted"}) | fields)
    assert response.status_code == 200, response.text
    return msgspec.json.decode(log.read_bytes().splitlines()[-1], type=Submit).request()
