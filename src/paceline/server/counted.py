"""Counts what HTTP brings: every request once, by route and status, and those that generation refuses."""

from collections.abc import Awaitable

from fastapi import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paceline.errors import PacelineError
from paceline.observe.requests import RequestMetrics

CLIENT_GONE_STATUS = 499
FAILED_STATUS = 500
UNKNOWN_ROUTE = "other"


class HttpCounter:
    """The outermost ASGI layer. A request counts when its answer begins: who has the answer finds it counted."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on; look at the start of the answer only."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_begun, status_unsent = False, CLIENT_GONE_STATUS

        def watch(message: Message) -> Awaitable[None]:
            # Not async: an event of a stream then costs one call more, not one coroutine more.
            nonlocal has_begun
            if not has_begun and message["type"] == "http.response.start":
                has_begun = True
                self._count(scope, message["status"])
            return send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception:
            status_unsent = FAILED_STATUS
            raise
        finally:
            if not has_begun:
                self._count(scope, status_unsent)

    def _count(self, scope: Scope, status: int) -> None:
        # The path of the route, not of the request: what clients make up must not become labels.
        route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
        self._metrics.http[route, str(status)] += 1


async def admitted(metrics: RequestMetrics, work: Awaitable[Response]) -> Response:
    """The response of a route that generates; what it refuses before anything is queued is counted."""
    try:
        return await work
    except PacelineError as error:
        metrics.reject(error.code)
        raise
