"""The page at /: a chat in the browser. Its files are part of this package and served as they are.

They need no API key; what the page asks of /v1 does. Nothing on it comes from another host, and its policy allows
neither that nor inline code, nor text that becomes HTML. A browser asks each time whether a file has changed and is
answered 304 when it has not, so that a new version of the server never runs beside an old script.
"""

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from fastapi import FastAPI, Request, Response

INDEX = "index.html"
SCRIPTS = ("page.js", "exchange.js", "server.js", "text_flow.js", "timing.js")
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file of the page, in memory. `etag` is a digest of its bytes."""

    body: bytes
    media_type: str
    etag: str

    @classmethod
    def read(cls, name: str) -> "PageFile":
        """The file of this name in the folder `page`."""
        body = files("paceline.server").joinpath("page", name).read_bytes()
        return cls(body, MEDIA_TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def response(self, known_etags: str) -> Response:
        """The file, or 304 when `known_etags` (If-None-Match, RFC 9110 §13.1.2) holds its etag."""
        known = {etag.strip().removeprefix("W/") for etag in known_etags.split(",")}
        headers = HEADERS | {"etag": self.etag}
        if self.etag in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type=self.media_type)


def add_page_routes(app: FastAPI) -> None:
    """The routes of the page. They work from the first moment on: the page explains that the model is loading."""
    add_page_file(app, "/", PageFile.read(INDEX))
    for name in ("page.css", "icon.svg", *SCRIPTS):
        add_page_file(app, f"/page/{name}", PageFile.read(name))


def add_page_file(app: FastAPI, path: str, file: PageFile) -> None:
    """One route; no part of the API, hence not in its schema."""

    @app.api_route(path, methods=["GET", "HEAD"], response_model=None, include_in_schema=False)
    async def get_file(request: Request) -> Response:
        """The file."""
        return file.response(request.headers.get("if-none-match", ""))
