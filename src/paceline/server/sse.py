"""Server-sent events over raw ASGI, and the watch for a client that goes away. The hot path of the server.

A stream sends bytes that are already framed; one send may carry several events. The watch is one task that waits for
the disconnect message, so that an event costs no check of the connection.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from fastapi import Response
from starlette.types import Receive, Scope, Send

EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
DONE = b"data: [DONE]\n\n"

T = TypeVar("T")


def event(data: bytes) -> bytes:
    """One event. JSON holds no raw newline, so one data line is always enough."""
    return b"data: " + data + b"\n\n"


class ClientGoneError(Exception):
    """The client closed its connection before the answer was complete."""


async def run_while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T:
    """Run `work`, cancelled when the client disconnects, which raises ClientGoneError. The body must have been read."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for unfinished in (task, gone):
            unfinished.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A response whose body is the events of a generator. The generator is closed when the client goes away."""

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__()
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send everything; a client that leaves is no error."""
        try:
            await run_while_connected(self._send_all(send), receive)
        except (ClientGoneError, OSError):
            pass
        finally:
            await self._events.aclose()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
        async for data in self._events:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
