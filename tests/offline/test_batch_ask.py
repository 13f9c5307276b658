"""What a batch makes of servers that are busy, broken, or write JSON in their own way."""

import asyncio
import json
from typing import Any

import aiohttp
import msgspec
import pytest
from commands import question
from foreign_server import HANG_UP, Reply, foreign_server

from paceline.errors import UnavailableError
from paceline.offline.batch_ask import Asked, Asker
from paceline.offline.batch_lines import BatchRequest, parse_line
from paceline.offline.endpoint import Endpoint

NOW = {"Retry-After": "0"}
GOOD = Reply(200, b'{\n "id": "r-1",\n "usage": {"completion_tokens": 7}\n}', {"X-Request-Id": "theirs"})
BUSY, DOWN = Reply(429, b'{"error": {"message": "busy"}}', NOW), Reply(503, b'{"error": {"message": "down"}}', NOW)


def request() -> BatchRequest:
    parsed = parse_line(1, json.dumps(question("a")).encode())
    assert isinstance(parsed, BatchRequest)
    return parsed


def asked(*replies: Reply) -> tuple[Asked, int]:
    """The answer, and how often it took asking."""

    async def ask(url: str) -> Asked:
        async with aiohttp.ClientSession() as session:
            return await Asker(session, Endpoint(url), lambda: None).ask(request())

    with foreign_server(replies) as server:
        answer = asyncio.run(ask(server.url))
    assert set(server.bodies) == {request().body}
    return answer, len(server.bodies)


def fields(answer: Asked) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(answer.answer))
    return decoded


def test_a_server_that_recovers_is_asked_again() -> None:
    answer, num_asked = asked(BUSY, DOWN, BUSY, DOWN, Reply(0, HANG_UP), GOOD)
    assert num_asked == 6
    assert answer.num_tokens == 7
    expected = {"status_code": 200, "request_id": "theirs", "body": json.loads(GOOD.body)}
    assert fields(answer)["response"] == expected
    assert fields(answer)["error"] is None


def test_a_server_that_stays_unavailable_is_taken_at_its_word() -> None:
    answer, num_asked = asked(DOWN)
    assert num_asked == 5
    assert fields(answer)["response"]["status_code"] == 503
    assert fields(answer)["error"] == {"code": "status_503", "message": "down"}


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (Reply(400, b'{"object": "error", "message": "no", "code": 400}'), "400", "no"),
        (Reply(500, b"<html>oops</html>"), "invalid_answer", "oops"),
        (Reply(404, b'{"detail": "Not Found"}'), "status_404", "404"),
        (Reply(200, b"fine"), "invalid_answer", "fine"),
    ],
)
def test_a_refusal_of_any_shape_becomes_an_error(reply: Reply, code: str, said: str) -> None:
    answer, num_asked = asked(reply)
    assert num_asked == 1
    error = fields(answer)["error"]
    assert error["code"] == code
    assert said in error["message"]


def test_a_server_that_is_known_to_be_gone_is_not_asked_again() -> None:
    def gone() -> None:
        raise UnavailableError("it ended", 1.0)

    async def ask(url: str) -> None:
        async with aiohttp.ClientSession() as session:
            await Asker(session, Endpoint(url), gone).ask(request())

    with foreign_server([Reply(0, HANG_UP)]) as server, pytest.raises(UnavailableError, match="it ended"):
        asyncio.run(ask(server.url))
    assert len(server.bodies) == 1
