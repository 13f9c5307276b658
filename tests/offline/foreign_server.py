"""Another vendor's server: real HTTP, answers as it likes. Each request gets the next reply; the last one repeats."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_UP = b"HANG UP"


@dataclass(frozen=True)
class Reply:
    """`body` HANG_UP: the connection closes without an answer. `claimed_bytes`: the length that is announced."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    claimed_bytes: int | None = None


@dataclass
class ForeignServer:
    """`bodies`: what it was asked."""

    url: str
    bodies: list[bytes] = field(default_factory=list)


@contextmanager
def foreign_server(replies: Sequence[Reply]) -> Iterator[ForeignServer]:
    left = list(replies)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            reply = left.pop(0) if len(left) > 1 else left[0]
            self.close_connection = True
            if reply.body == HANG_UP:
                return
            self.send_response(reply.status)
            length = len(reply.body) if reply.claimed_bytes is None else reply.claimed_bytes
            for name, value in ({"Content-Length": str(length), "Connection": "close"} | reply.headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(reply.body)

        def log_message(self, *arguments: Any) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = ForeignServer(f"http://127.0.0.1:{listener.server_port}")
    thread = threading.Thread(target=listener.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()
