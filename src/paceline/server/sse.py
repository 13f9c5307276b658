"""Server-sent events over raw ASGI, and the watch for a client that goes away. The hot path of the server.

A stream sends bytes that are already framed; one send may carry several events. The watch is one task that waits for
the disconnect message, so that an event costs no check of the connection. A stream that has been quiet for a while
sends a comment, which clients skip, so that proxies don't take it for dead.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Send

EVENT_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
KEEP_ALIVE_S = 15.0
"""Silence after which a comment is sent; noticed at most a third of it later."""

QUIET_CHECKS = 3

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


class QuietWatch:
    """Sends comments while nothing else is sent. An event costs it one addition, made by whoever sends."""

    def __init__(self, send: Send, keep_alive_s: float) -> None:
        self.num_sent = 0
        self._send = send
        self._check_s = keep_alive_s / QUIET_CHECKS

    async def run(self) -> None:
        """Watch until cancelled."""
        num_seen, num_quiet = -1, 0
        while True:
            await asyncio.sleep(self._check_s)
            num_quiet = num_quiet + 1 if self.num_sent == num_seen else 0
            num_seen = self.num_sent
            if num_quiet == QUIET_CHECKS:
                num_quiet = 0
                await self._send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})


async def send_stream(events: AsyncGenerator[bytes, None], send: Send, keep_alive_s: float = KEEP_ALIVE_S) -> None:
    """Send a whole response whose body is the events of a generator."""
    await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
    watch = QuietWatch(send, keep_alive_s)
    watching = asyncio.ensure_future(watch.run())
    try:
        async for data in events:
            watch.num_sent += 1
            await send({"type": "http.response.body", "body": data, "more_body": True})
    finally:
        watching.cancel()
    await send({"type": "http.response.body", "body": b"", "more_body": False})
