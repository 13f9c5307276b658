"""One request of a batch and its answer over HTTP. What passes is waited for; what stays becomes the answer.

Nothing is written here, so asking again repeats work but never a line.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import msgspec

from paceline.errors import UnavailableError
from paceline.offline.batch_lines import Answer, BatchRequest, answer_to_request
from paceline.offline.endpoint import Endpoint

OVERLOADED, UNAVAILABLE = 429, 503
# A queue empties and an engine restarts within this; a server that says no for longer means it.
OVERLOAD_PATIENCE_S = 600.0
MAX_UNAVAILABLE = 5
MAX_LOST = 5
LONGEST_WAIT_S = 16.0
MAX_WAIT_ASKED_S = 60.0


class Counted(msgspec.Struct, frozen=True):
    """The token counts of an answer."""

    completion_tokens: int = 0
    prompt_tokens: int = 0


class Whole(msgspec.Struct, frozen=True):
    """What we read of an answer's body."""

    id: str = ""
    usage: Counted | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer and its output tokens."""

    answer: Answer
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back over HTTP."""

    status: int
    request_id: str
    retry_after_s: float | None
    body: bytes


class Asker:
    """Asks one server. `check_alive` raises when it is known to be gone."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint, check_alive: Callable[[], None]) -> None:
        self._session = session
        self._endpoint = endpoint
        self._check_alive = check_alive

    async def ask(self, request: BatchRequest) -> Asked:
        """The answer. Raises UnavailableError when the server can't be reached any more."""
        started_s = time.monotonic()
        num_lost = num_unavailable = 0
        while True:
            try:
                reply = await self._post(request)
            except (aiohttp.ClientError, OSError) as error:
                num_lost += 1
                self._check_alive()
                if num_lost == MAX_LOST:
                    raise UnavailableError(
                        f"{self._endpoint.url} does not answer ({type(error).__name__}: {error}); "
                        "run the same command again to go on",
                        LONGEST_WAIT_S,
                    ) from None
                await asyncio.sleep(wait_s(num_lost))
                continue
            num_unavailable += reply.status == UNAVAILABLE
            is_busy = reply.status == OVERLOADED and time.monotonic() - started_s < OVERLOAD_PATIENCE_S
            if not is_busy and not (reply.status == UNAVAILABLE and num_unavailable < MAX_UNAVAILABLE):
                return asked(request, reply)
            await asyncio.sleep(wait_s(num_unavailable) if reply.retry_after_s is None else reply.retry_after_s)

    async def _post(self, request: BatchRequest) -> Reply:
        url = self._endpoint.url + request.route
        async with self._session.post(url, data=request.body, headers=self._endpoint.headers) as response:
            body = await response.read()
            headers = response.headers
            return Reply(
                response.status, headers.get("x-request-id", ""), asked_wait_s(headers.get("retry-after")), body
            )


def asked(request: BatchRequest, reply: Reply) -> Asked:
    """The reply as an output line."""
    try:
        whole = msgspec.json.decode(reply.body, type=Whole)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        whole = Whole()
    answer = answer_to_request(request, reply.status, reply.request_id or whole.id, reply.body)
    return Asked(answer, 0 if whole.usage is None else whole.usage.completion_tokens)


def wait_s(num_tries: int) -> float:
    """Twice as long each time."""
    return min(2.0 ** max(num_tries - 1, 0), LONGEST_WAIT_S)


def asked_wait_s(retry_after: str | None) -> float | None:
    """Seconds of a Retry-After; None when there is none, or it is a date."""
    if retry_after is None or not retry_after.isdigit():
        return None
    return min(float(retry_after), MAX_WAIT_ASKED_S)
