"""A streamed answer, read from servers that think aloud, fail in the middle, or break off."""

import pytest
from foreign_server import HANG_UP, Reply, foreign_server

from paceline.errors import PacelineError, UnavailableError
from paceline.offline.chat_conversation import Conversation, told
from paceline.offline.chat_stream import Piece
from paceline.offline.endpoint import Endpoint, parse_url

THINKING = b'data: {"choices":[{"delta":{"role":"assistant","reasoning_content":"hm"},"finish_reason":null}]}\n\n'
HELLO = b'data: {"choices":[{"delta":{"content":"Hello"},"finish_reason":null}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5}}\n\n'
DONE = b"data: [DONE]\n\n"


def ask(*replies: Reply) -> tuple[Conversation, list[Piece], str]:
    """The conversation after one question, what was shown, and the error's text."""
    shown: list[Piece] = []
    with foreign_server(replies) as server:
        conversation = Conversation(Endpoint(server.url), {"model": "m"})
        try:
            conversation.ask("Hi", shown.append)
        except PacelineError as error:
            return conversation, shown, error.message
    return conversation, shown, ""


def test_thinking_is_shown_apart_and_not_remembered() -> None:
    comment = b": keep-alive\n\n"
    conversation, shown, error = ask(Reply(200, THINKING + comment + HELLO + HELLO + USAGE + DONE))
    assert error == ""
    assert shown == [Piece("hm", is_reasoning=True), Piece("Hello"), Piece("Hello")]
    assert conversation.turns == [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "HelloHello"}]
    assert "5 tokens" in told(conversation.timings[0])
    assert "prompt 9 tokens" in told(conversation.timings[0])


@pytest.mark.parametrize(
    ("reply", "said", "num_turns"),
    [
        (Reply(200, HELLO + b'data: {"error":{"message":"engine down"}}\n\n' + DONE), "engine down", 2),
        (Reply(200, HELLO), "before the answer was complete", 2),
        (Reply(200, HELLO, claimed_bytes=10_000), "before the answer was complete", 2),
        (Reply(200, HELLO + b"data: {nonsense\n\n"), "no chunk", 2),
        (Reply(200, b'data: {"error":"flat"}\n\n'), "flat", 0),
        (Reply(503, b'{"error":{"message":"loading"}}'), "loading", 0),
        (Reply(502, b"<html>"), "status 502: <html>", 0),
        (Reply(0, HANG_UP), "", 0),
    ],
)
def test_what_came_before_a_failure_is_kept_and_the_failure_told(reply: Reply, said: str, num_turns: int) -> None:
    conversation, _, error = ask(reply)
    assert error
    assert said in error
    assert len(conversation.turns) == num_turns


def test_a_server_that_is_not_there_is_named() -> None:
    conversation = Conversation(Endpoint("http://127.0.0.1:9"), {"model": "m"})
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:9.*refused"):
        conversation.ask("Hi", lambda piece: None)


@pytest.mark.parametrize("text", ["127.0.0.1:8000", "http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1/"])
def test_a_url_is_taken_as_people_type_it(text: str) -> None:
    assert parse_url(text) == "http://127.0.0.1:8000"
