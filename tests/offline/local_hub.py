"""A model hub on this machine: the four routes that a download of one repository takes, over real HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class LocalHub:
    """`files_sent`: the names of files whose content was asked for."""

    url: str
    files_sent: list[str] = field(default_factory=list)


@contextmanager
def local_hub(name: str, folder: Path) -> Iterator[LocalHub]:
    """Offer a folder's files as the hub repository `name`, and none else."""
    files = {path.name: path.read_bytes() for path in folder.iterdir()}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(is_head=True)

        def do_GET(self) -> None:
            self.answer(is_head=False)

        def answer(self, is_head: bool) -> None:
            path = self.path.partition("?")[0]
            file = path.removeprefix(f"/{name}/resolve/{COMMIT}/")
            if file in files:
                if not is_head:
                    hub.files_sent.append(file)
                self.reply(200, files[file], is_head)
            elif path.startswith(f"/api/models/{name}/tree/"):
                self.reply(200, json.dumps(tree(files)).encode(), is_head)
            elif path.startswith(f"/api/models/{name}"):
                self.reply(200, json.dumps({"id": name, "sha": COMMIT, "siblings": []}).encode(), is_head)
            else:
                self.reply(404, b"{}", is_head, {"X-Error-Code": "RepoNotFound"})

        def reply(self, status: int, data: bytes, is_head: bool, more: dict[str, str] | None = None) -> None:
            self.send_response(status)
            headers = {"Content-Length": str(len(data)), "X-Repo-Commit": COMMIT, "ETag": f'"{sha1(data).hexdigest()}"'}
            for key, value in (headers | (more or {})).items():
                self.send_header(key, value)
            self.end_headers()
            if not is_head:
                self.wfile.write(data)

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = LocalHub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def tree(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"type": "file", "path": name, "size": len(data), "oid": sha1(data).hexdigest()} for name, data in files.items()
    ]
