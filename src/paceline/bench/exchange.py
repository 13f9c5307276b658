"""One request and its answer over HTTP, with the time of every read. Nothing is parsed on the way, and nothing is sent
twice that a server may have seen.

The reads come from the connection's own buffer, one timestamp each; the stream is decoded after it ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
import msgspec

from paceline.bench.endpoint import Endpoint
from paceline.bench.record import Outcome
from paceline.bench.stream import TimedRead, shortened

REJECTING_STATUSES = (429, 503)
# Below the idle time-out of common servers (uvicorn: 5 s), so that no request meets a connection being closed.
IDLE_CONNECTION_S = 2.0
READ_BUFFER_BYTES = 2**20


@dataclass(slots=True)
class Exchange:
    """What happened, by time.monotonic(). `sent_s`: the headers were written (or, failing that, the attempt began).
    `is_on_kept`: over a connection that had been used before.
    """

    sent_s: float
    is_on_kept: bool = False
    ended_s: float = 0.0
    outcome: Outcome = Outcome.COMPLETED
    status: int | None = None
    error: str | None = None
    reads: list[TimedRead] = field(default_factory=list)

    def fail(self, outcome: Outcome, error: str) -> None:
        """Record why there is no whole answer."""
        self.outcome = outcome
        self.error = shortened(error)


async def note_sent(session: aiohttp.ClientSession, context: SimpleNamespace, _: object) -> None:
    """The trace hook of the HTTP library: the request is on its way now."""
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.sent_s = time.monotonic()


async def note_kept(session: aiohttp.ClientSession, context: SimpleNamespace, _: object) -> None:
    """Likewise: the request goes over a kept connection."""
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.is_on_kept = True


@asynccontextmanager
async def open_session(endpoint: Endpoint) -> AsyncIterator[aiohttp.ClientSession]:
    """Connections to one server. Their number is bounded by whoever sends, so that the wait is seen and counted."""
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(note_sent)
    trace.on_connection_reuseconn.append(note_kept)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_CONNECTION_S),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
        headers=endpoint.headers,
        trace_configs=[trace],
        read_bufsize=READ_BUFFER_BYTES,
    ) as session:
        yield session


async def exchange(session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes, timeout_s: float) -> Exchange:
    """Send a request and read its answer to the end, for at most `timeout_s`."""
    result = Exchange(sent_s=time.monotonic())
    try:
        async with asyncio.timeout(timeout_s):
            while not await is_answered(session, endpoint, body, result):
                pass
    except aiohttp.ClientError as error:  # first: a connection that takes too long to open is a TimeoutError as well
        result.fail(Outcome.FAILED, f"{type(error).__name__}: {error}")
    except TimeoutError:
        result.fail(Outcome.TIMED_OUT, f"no whole answer within {timeout_s:g} s")
    except OSError as error:
        result.fail(Outcome.FAILED, f"{type(error).__name__}: {error}")
    result.ended_s = time.monotonic()
    return result


async def is_answered(session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes, result: Exchange) -> bool:
    """Fill in `result`; False when a kept connection turned out to be closed. Some servers (llama.cpp's) promise to
    keep a connection and close it after a stream: what is sent then is seen by nobody, and every client asks again.
    """
    result.is_on_kept = False
    try:
        await read_answer(session, endpoint, body, result)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        if result.is_on_kept and result.status is None:
            return False
        raise
    return True


async def read_answer(session: aiohttp.ClientSession, endpoint: Endpoint, body: bytes, result: Exchange) -> None:
    """Fill in `result`."""
    headers = {"Content-Type": "application/json"}
    async with session.post(endpoint.route, data=body, headers=headers, trace_request_ctx=result) as response:
        result.status = response.status
        if response.status != 200:
            outcome = Outcome.REJECTED if response.status in REJECTING_STATUSES else Outcome.FAILED
            result.fail(outcome, f"status {response.status}: {await response.text(errors='replace')}")
            return
        reads, content, clock = result.reads, response.content, time.monotonic
        while data := await content.readany():
            reads.append(TimedRead(clock(), data))


def encode_body(body: dict[str, object]) -> bytes:
    """JSON, made before the request is due."""
    return msgspec.json.encode(body)
