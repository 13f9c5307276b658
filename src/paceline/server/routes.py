"""The application: routes, and the translation of errors. Holds no state but the context it is given."""

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from paceline import __version__
from paceline.errors import PacelineError, RequestError
from paceline.observe.metrics import CONTENT_TYPE
from paceline.server.auth import check_key
from paceline.server.checks import shown
from paceline.server.context import ServingContext
from paceline.server.counted import admitted
from paceline.server.docs_page import add_document_routes
from paceline.server.embedding import embeddings
from paceline.server.errors import error_response
from paceline.server.generate import chat_completions, completions
from paceline.server.page_files import add_page_routes
from paceline.server.tokenize import add_tokenizer_routes


def create_app(context: ServingContext) -> FastAPI:
    """The ASGI application over one context."""
    app = FastAPI(openapi_url=None)  # FastAPI's own document and pages know nothing of our bodies
    add_generation_routes(app, context)
    add_tokenizer_routes(app, context)
    add_document_routes(app, context)
    add_model_routes(app, context)
    add_probe_routes(app, context)
    add_page_routes(app)
    app.add_exception_handler(PacelineError, answer_error)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(Exception, answer_bug)
    return app


def add_generation_routes(app: FastAPI, context: ServingContext) -> None:
    """The routes that compute."""

    @app.post("/v1/chat/completions", response_model=None)
    async def post_chat_completions(request: Request) -> Response:
        """Answer a conversation."""
        return await admitted(context.metrics.requests, chat_completions(context, request))

    @app.post("/v1/completions", response_model=None)
    async def post_completions(request: Request) -> Response:
        """Continue prompts."""
        return await admitted(context.metrics.requests, completions(context, request))

    @app.post("/v1/embeddings", response_model=None)
    async def post_embeddings(request: Request) -> Response:
        """Turn texts into vectors."""
        return await embeddings(context, request)


def add_model_routes(app: FastAPI, context: ServingContext) -> None:
    """What is served here."""

    def model_card(name: str) -> dict[str, object]:
        return {
            "id": name,
            "object": "model",
            "created": context.created_s,
            "owned_by": "paceline",
            "root": context.config.engine.model,
            "max_model_len": context.client.limits.effective_context,
        }

    @app.get("/v1/models", response_model=None)
    async def get_models(request: Request) -> Response:
        """All names."""
        check_key(request, context.config.api_keys)
        context.check_ready()
        return json_response({"object": "list", "data": [model_card(name) for name in context.config.model_names]})

    @app.get("/v1/models/{name:path}", response_model=None)
    async def get_model(request: Request, name: str) -> Response:
        """One name."""
        check_key(request, context.config.api_keys)
        context.check_ready()
        context.check_model(name)
        return json_response(model_card(name))


def add_probe_routes(app: FastAPI, context: ServingContext) -> None:
    """Probes, without a key. Ready means that a request would be served now; live, that waiting for it makes sense."""

    @app.get("/health", response_model=None)
    @app.get("/ready", response_model=None)
    @app.get("/ping", response_model=None)
    @app.post("/ping", response_model=None)
    async def get_ready() -> Response:
        """200 when requests are served, else 503 with the reason."""
        context.check_ready()
        return json_response({"status": "ready"})

    @app.get("/live", response_model=None)
    async def get_live() -> Response:
        """503 once the engine has been given up, or has work and makes no step."""
        context.client.check_live()
        return json_response({"status": str(context.client.state)})

    @app.get("/version", response_model=None)
    async def get_version() -> Response:
        """Our version."""
        return json_response({"version": __version__})

    @app.get("/metrics", response_model=None)
    async def get_metrics() -> Response:
        """Everything measured, for Prometheus."""
        return Response(await context.metrics.page(), media_type=CONTENT_TYPE)


def json_response(content: object) -> Response:
    """Content as JSON."""
    return Response(msgspec.json.encode(content), media_type="application/json")


async def answer_error(request: Request, error: Exception) -> Response:
    """An error of ours, as OpenAI's object."""
    assert isinstance(error, PacelineError), "registered for PacelineError"
    return error_response(error)


async def answer_http_error(request: Request, error: Exception) -> Response:
    """The framework's own refusals (unknown path, wrong method) in the same form."""
    assert isinstance(error, HTTPException), "registered for HTTPException"
    ours: RequestError = RequestError(f"{request.method} {shown(request.url.path)}: {error.detail}")
    response = error_response(ours)
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def answer_bug(request: Request, error: Exception) -> Response:
    """Anything else is our fault: told without details; the framework goes on to log it with its trace."""
    return error_response(PacelineError("the server failed on this request; the fault is logged"))
