"""What surrounds every route: an id, a record, a key's requests a minute, CORS, and one log line at the end.

Owns no state but the rate limits. Stands outside the framework, so that refusals of the framework and answers to bugs
carry the request's id too.
"""

import logging
import time
from collections.abc import Awaitable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.config import ServeConfig
from paceline.errors import RateLimitError
from paceline.server.context import ServingContext
from paceline.server.errors import error_response
from paceline.server.rate_limit import KeyLimits
from paceline.server.record import RequestRecord
from paceline.server.request_log import log_request

logger = logging.getLogger(__name__)

PROBES = frozenset(("/health", "/ready", "/live", "/ping", "/metrics"))
EXPOSED_HEADERS = (
    "x-request-id",
    "retry-after",
    *(f"x-ratelimit-{what}-{of}" for what in ("limit", "remaining", "reset") for of in ("requests", "tokens")),
)


def surround(app: ASGIApp, context: ServingContext) -> ASGIApp:
    """The application with everything around it."""
    around = Around(app, context)
    if not context.config.allowed_origins:
        return around
    # Imported here: most servers start without it.
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        around,
        allow_origins=context.config.allowed_origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=EXPOSED_HEADERS,
    )


class Around:
    """The layer right outside the framework."""

    def __init__(self, app: ASGIApp, context: ServingContext) -> None:
        self._app = app
        self._context = context
        self._limits = limits_of_keys(context.config)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request from its arrival to its log line."""
        record = RequestRecord.of(scope, self._context.config.api_keys)
        record.limits = self._limits_for(record)

        def send_marked(message: Message) -> Awaitable[None]:
            # Not async: an event of a stream costs one call more, not one coroutine more.
            if message["type"] == "http.response.start":
                begin_answer(record, message)
            return send(message)

        self._context.num_open_requests += 1
        try:
            await self._limited(record)(scope, receive, send_marked)
        except Exception:
            # The client has been told, or its stream breaks off; nobody else is affected.
            logger.exception("request %s failed by our fault", record.request_id)
        finally:
            self._context.num_open_requests -= 1
            if record.path not in PROBES:
                log_request(record, time.monotonic())

    def _limits_for(self, record: RequestRecord) -> KeyLimits | None:
        """The limits that the request counts towards. One with a wrong key counts nowhere: it is refused."""
        if record.method != "POST" or record.path in PROBES or not self._limits:
            return None
        if record.key_position is None:
            return None if self._context.config.api_keys else self._limits[0]
        return self._limits[record.key_position - 1]

    def _limited(self, record: RequestRecord) -> ASGIApp:
        """The application, or the refusal when the key has sent its requests of this minute."""
        bucket = None if record.limits is None else record.limits.requests
        if bucket is None:
            return self._app
        wait_s = bucket.wait_s(1, record.arrival_s)
        if wait_s > 0:
            message = f"this key may send {bucket.per_minute} requests a minute (--rate-limit-requests)"
            error = RateLimitError(f"{message}; the next in {wait_s:.1f} s", wait_s)
            self._context.metrics.requests.reject(error.code)
            return error_response(error)
        bucket.take(1, record.arrival_s)
        return self._app


def limits_of_keys(config: ServeConfig) -> tuple[KeyLimits, ...]:
    """Full buckets for each key; one set for everybody where no keys are asked for; () without limits."""
    if config.rate_limit_requests is None and config.rate_limit_tokens is None:
        return ()
    now_s = time.monotonic()
    return tuple(
        KeyLimits.of(config.rate_limit_requests, config.rate_limit_tokens, now_s)
        for _ in range(max(1, len(config.api_keys)))
    )


def begin_answer(record: RequestRecord, message: Message) -> None:
    """Note the status, and add the headers that every answer has."""
    record.status = message["status"]
    extra = [(b"x-request-id", record.request_id.encode())]
    if record.limits is not None:
        extra += record.limits.headers(time.monotonic())
    message["headers"] = [*message.get("headers", ()), *extra]
