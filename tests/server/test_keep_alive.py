"""Comments that keep a quiet stream open: sent when nothing else is, and never in between or after the end."""

import asyncio
from collections.abc import AsyncGenerator

from starlette.types import Message

from paceline.server.sse import KEEP_ALIVE, send_stream


async def sent(events: AsyncGenerator[bytes, None], keep_alive_s: float) -> list[bytes]:
    bodies: list[bytes] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            assert bodies[-1:] != [b""], "nothing follows the end"
            bodies.append(message["body"])

    await send_stream(events, send, keep_alive_s)
    return bodies


async def paced(pauses_s: list[float]) -> AsyncGenerator[bytes, None]:
    for index, pause_s in enumerate(pauses_s):
        await asyncio.sleep(pause_s)
        yield b"data: %d\n\n" % index


def test_a_stream_with_events_gets_no_comment() -> None:
    bodies = asyncio.run(sent(paced([0.01] * 40), 0.15))
    assert bodies == [b"data: %d\n\n" % index for index in range(40)] + [b""]


def test_silence_is_filled_with_comments() -> None:
    bodies = asyncio.run(sent(paced([0.0, 0.7, 0.0]), 0.15))
    assert bodies[0] == b"data: 0\n\n"
    num_comments = bodies.count(KEEP_ALIVE)
    assert 2 <= num_comments <= 5
    assert bodies[1 : 1 + num_comments] == [KEEP_ALIVE] * num_comments
    assert bodies[-3:] == [b"data: 1\n\n", b"data: 2\n\n", b""]


def test_a_comment_is_no_event_to_clients() -> None:
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")
