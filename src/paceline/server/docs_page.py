"""GET /openapi.json and GET /docs. The page is the same document as plain HTML: no script, no foreign host."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from html import escape
from typing import Any

import msgspec
from fastapi import FastAPI, Response

from paceline.engine.contract import EngineLimits
from paceline.server.context import ServingContext
from paceline.server.openapi import document

# Nothing may be loaded or run, whatever stands in the document.
PAGE_HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{font-family:ui-monospace,monospace;overflow-wrap:anywhere}"
    "td,th{text-align:left;vertical-align:top;padding:.2rem 1rem .2rem 0}"
)


def add_document_routes(app: FastAPI, context: ServingContext) -> None:
    """The document and the page. No key is asked for: they say nothing about users."""

    @app.get("/openapi.json", response_model=None)
    async def get_document() -> Response:
        """The OpenAPI document."""
        context.check_ready()
        content = document_json(context.config.model_names, context.client.limits, bool(context.config.api_keys))
        return Response(content, media_type="application/json")

    @app.get("/docs", response_model=None)
    async def get_page() -> Response:
        """The document to read."""
        context.check_ready()
        content = page_html(context.config.model_names, context.client.limits, bool(context.config.api_keys))
        return Response(content, headers=PAGE_HEADERS, media_type="text/html; charset=utf-8")


@lru_cache(maxsize=1)
def document_json(names: tuple[str, ...], facts: EngineLimits, asks_for_key: bool) -> bytes:
    """The document, made once: it costs milliseconds, and running streams should not wait for whoever reads it."""
    return msgspec.json.encode(document(names, facts, asks_for_key))


@lru_cache(maxsize=1)
def page_html(names: tuple[str, ...], facts: EngineLimits, asks_for_key: bool) -> str:
    """The page, made once."""
    return page(document(names, facts, asks_for_key))


def page(content: Mapping[str, Any]) -> str:
    """The whole page."""
    title = escape(f"{content['info']['title']} {content['info']['version']}")
    head = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style>"
    )
    return "\n".join([head, f"<h1>{title}</h1>", *routes(content), *schemas(content), "</html>"])


def row(cells: Iterable[str], kind: str = "td") -> str:
    """A row of a table."""
    return "<tr>" + "".join(f"<{kind}>{cell}</{kind}>" for cell in cells) + "</tr>"


def routes(content: Mapping[str, Any]) -> Iterator[str]:
    """Every route with links to what it takes and gives."""
    yield '<p>As <a href="/openapi.json">OpenAPI</a>.</p><h2>Routes</h2><table>'
    yield row(("Route", "What it does", "Takes", "Answers", "Statuses"), "th")
    for path, operations in content["paths"].items():
        for method, operation in operations.items():
            body = operation.get("requestBody", {}).get("content", {})
            answer = operation["responses"]["200"]["content"]
            cells = [f"<code>{method.upper()} {escape(path)}</code>", escape(operation["summary"])]
            yield row([*cells, links(body), links(answer), ", ".join(sorted(operation["responses"]))])
    yield "</table>"


def links(content: Mapping[str, Any]) -> str:
    """Links to the schemas of a content: of its JSON, and of its events where it may be a stream."""
    places = (("application/json", "schema"), ("text/event-stream", "x-event-data"))
    kinds = (content.get(media_type, {}).get(key) for media_type, key in places)
    names = [escape(kind["$ref"].rpartition("/")[2]) for kind in kinds if kind]
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in dict.fromkeys(names))


def schemas(content: Mapping[str, Any]) -> Iterator[str]:
    """Every schema, a row a field."""
    yield "<h2>Bodies</h2>"
    for name, schema in content["components"]["schemas"].items():
        yield f'<h3 id="{escape(name)}">{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p><table>'
        for field, kind in schema.get("properties", {}).items():
            mark = " (required)" if field in schema.get("required", ()) else ""
            shown = escape(msgspec.json.encode(kind).decode())
            yield row((f"<code>{escape(field)}</code>{mark}", f"<code>{shown}</code>"))
        yield "</table>"
