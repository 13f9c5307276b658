"""The OpenAPI document: every route with what it takes and what it answers, as this server really does.

Made from the types that requests are decoded as and the types that answers are tested against, so it is written
nowhere twice. A route that is not in `OPERATIONS` fails a test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from paceline import __version__
from paceline.engine.contract import EngineLimits
from paceline.observe.metrics import CONTENT_TYPE
from paceline.server import answer_types as answers
from paceline.server.field_schemas import REFERENCE, request_schemas

BAD_REQUEST = (400, 413)
GUARDED = (401,)
NOT_READY = (503,)
COMPUTES = (*BAD_REQUEST, *GUARDED, 404, 429, 500, *NOT_READY)
GENERATES = (*COMPUTES, 504)
WITH_RETRY_AFTER = (429, 503)
HTML = "text/html"


@dataclass(frozen=True, slots=True)
class Operation:
    """One route and method. `request` names a schema; `events`: what each event of a streamed answer is."""

    method: str
    path: str
    summary: str
    answer: type[msgspec.Struct] | None = None
    errors: Sequence[int] = ()
    request: str | None = None
    events: type[msgspec.Struct] | None = None
    media_type: str = "application/json"


OPERATIONS = (
    Operation(
        "post",
        "/v1/chat/completions",
        "Answer a conversation",
        answers.ChatCompletion,
        GENERATES,
        "ChatCompletionRequest",
        answers.ChatCompletionChunk,
    ),
    Operation(
        "post",
        "/v1/completions",
        "Continue prompts",
        answers.Completion,
        GENERATES,
        "CompletionRequest",
        answers.Completion,
    ),
    *(
        Operation("post", prefix + path, summary, answer, COMPUTES, request)
        for prefix in ("", "/v1")
        for path, summary, answer, request in (
            ("/tokenize", "Token ids of a text or a conversation", answers.TokenizeAnswer, "TokenizeRequest"),
            ("/detokenize", "The text of token ids", answers.DetokenizeAnswer, "DetokenizeRequest"),
        )
    ),
    Operation(
        "post", "/v1/embeddings", "Vectors of texts", answers.EmbeddingList, (*COMPUTES, 500), "EmbeddingRequest"
    ),
    Operation("get", "/v1/models", "All model names", answers.ModelList, (*GUARDED, *NOT_READY)),
    Operation("get", "/v1/models/{name}", "One model name", answers.ModelCard, (*GUARDED, 404, *NOT_READY)),
    *(
        Operation(method, path, "200 when requests are served now", answers.Status, NOT_READY)
        for method, path in (("get", "/health"), ("get", "/ready"), ("get", "/ping"), ("post", "/ping"))
    ),
    Operation("get", "/live", "200 while waiting for the server makes sense", answers.Status, NOT_READY),
    Operation("get", "/version", "The server's version", answers.Version),
    Operation("get", "/metrics", "What Prometheus scrapes", media_type=CONTENT_TYPE),
    Operation("get", "/openapi.json", "This document", None, NOT_READY),
    Operation("get", "/docs", "This document, to read", None, NOT_READY, media_type=HTML),
)


def document(names: Sequence[str], facts: EngineLimits, asks_for_key: bool) -> dict[str, Any]:
    """The document of a server with these model names and limits, and with or without keys."""
    shown = {kind for operation in OPERATIONS for kind in (operation.answer, operation.events) if kind is not None}
    kinds = [*sorted(shown, key=lambda kind: kind.__name__), answers.ErrorAnswer]
    _, components = msgspec.json.schema_components(kinds, ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = described(operation, asks_for_key)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Paceline", "version": __version__, "description": "Large language models over HTTP."},
        "paths": paths,
        "components": {
            "schemas": request_schemas(facts, names) | components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def described(operation: Operation, asks_for_key: bool) -> dict[str, Any]:
    """One operation as OpenAPI has it."""
    errors = [status for status in operation.errors if asks_for_key or status not in GUARDED]
    responses = {"200": success(operation)} | {str(status): failure(status) for status in errors}
    entry: dict[str, Any] = {"summary": operation.summary, "responses": responses}
    if GUARDED[0] in errors:
        entry["security"] = [{"key": []}]
    if "{name}" in operation.path:
        entry["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if operation.request is not None:
        entry["requestBody"] = {"required": True, "content": as_json(operation.request)}
    return entry


def success(operation: Operation) -> dict[str, Any]:
    """The answer with status 200."""
    if operation.answer is None:
        return {"description": operation.summary, "content": {operation.media_type: {}}}
    content = as_json(operation.answer.__name__)
    if operation.events is not None:
        # OpenAPI 3.1 has no word for the events of a stream.
        content["text/event-stream"] = {"x-event-data": {"$ref": REFERENCE.format(name=operation.events.__name__)}}
    return {"description": operation.summary, "content": content}


def failure(status: int) -> dict[str, Any]:
    """An answer that is an error."""
    entry: dict[str, Any] = {"description": HTTPStatus(status).phrase, "content": as_json("ErrorAnswer")}
    if status in WITH_RETRY_AFTER:
        retry_after = {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 1}}
        entry["headers"] = {"Retry-After": retry_after}
    return entry


def as_json(name: str) -> dict[str, Any]:
    """Content of one schema."""
    return {"application/json": {"schema": {"$ref": REFERENCE.format(name=name)}}}
