"""One streamed chat answer over HTTP, read on the caller's thread: Ctrl-C lands in the middle of it and ends it.

Closing the connection is all it takes to stop a server's work on an answer.
"""

import http.client
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from paceline.errors import PacelineError, UnavailableError
from paceline.offline.endpoint import Endpoint

RETRY_AFTER_S = 2.0
CONNECT_S = 30.0
MAX_TEXT_SHOWN = 300
END = b"[DONE]"


class Delta(msgspec.Struct, frozen=True):
    """What a chunk adds."""

    content: str | None = None
    reasoning_content: str | None = None


class StreamedChoice(msgspec.Struct, frozen=True):
    """A choice of a chunk."""

    delta: Delta = Delta()
    finish_reason: str | None = None


class Cached(msgspec.Struct, frozen=True):
    """The part of a prompt that was not computed again."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct, frozen=True):
    """Token counts of an answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: Cached | None = None


class Chunk(msgspec.Struct, frozen=True):
    """One event of the stream."""

    choices: list[StreamedChoice] = []
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


@dataclass(slots=True)
class Timing:
    """When an answer's pieces came, by time.monotonic(), and what the server counted."""

    started_s: float
    piece_times_s: list[float] = field(default_factory=list)
    usage: Usage | None = None
    finish_reason: str | None = None

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first piece."""
        return self.piece_times_s[0] - self.started_s if self.piece_times_s else None

    @property
    def num_tokens(self) -> int:
        """As the server counts; pieces, when the answer was stopped before it said."""
        return self.usage.completion_tokens if self.usage else len(self.piece_times_s)

    @property
    def tokens_per_s(self) -> float | None:
        """The pace after the first token."""
        if len(self.piece_times_s) < 2 or self.num_tokens < 2:
            return None
        return (self.num_tokens - 1) / max(self.piece_times_s[-1] - self.piece_times_s[0], 1e-9)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of the answer, or of the thinking before it."""

    text: str
    is_reasoning: bool = False


@contextmanager
def connected(endpoint: Endpoint) -> Iterator[http.client.HTTPConnection]:
    """A connection to the server. Raises UnavailableError for what goes wrong with it."""
    parts = urlsplit(endpoint.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(parts.netloc, timeout=CONNECT_S)) as connection:
            connection.connect()
            connection.sock.settimeout(None)
            yield connection
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(f"{endpoint.url}: {str(error) or type(error).__name__}", RETRY_AFTER_S) from None


def first_model(endpoint: Endpoint) -> str:
    """The name of the first model a server lists. Raises UnavailableError."""
    with connected(endpoint) as connection:
        connection.request("GET", urlsplit(endpoint.url).path + "/v1/models", headers=endpoint.headers)
        response = connection.getresponse()
        data = response.read()
    try:
        name = msgspec.json.decode(data)["data"][0]["id"]
    except (msgspec.DecodeError, LookupError, TypeError):
        name = None
    if response.status != 200 or not isinstance(name, str):
        what = f"status {response.status}: {data.decode('utf-8', 'replace')[:MAX_TEXT_SHOWN]}"
        raise UnavailableError(f"{endpoint.url}/v1/models names no model ({what}); name it with --model", RETRY_AFTER_S)
    return name


def stream_answer(
    endpoint: Endpoint, messages: Sequence[Mapping[str, str]], options: Mapping[str, object], timing: Timing
) -> Generator[Piece, None, None]:
    """The answer's pieces as they come; `timing` is filled in. Raises PacelineError with the server's own words."""
    body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, **options}
    path = urlsplit(endpoint.url).path + "/v1/chat/completions"
    with connected(endpoint) as connection:
        connection.request("POST", path, msgspec.json.encode(body), dict(endpoint.headers))
        response = connection.getresponse()
        if response.status != 200:
            raise PacelineError(error_text(response.read(), f"status {response.status}"))
        for data in events(response):
            chunk = parse_chunk(data)
            timing.usage = chunk.usage or timing.usage
            for choice in chunk.choices:
                timing.finish_reason = choice.finish_reason or timing.finish_reason
                if choice.delta.content or choice.delta.reasoning_content:
                    timing.piece_times_s.append(time.monotonic())
                if choice.delta.reasoning_content:
                    yield Piece(choice.delta.reasoning_content, is_reasoning=True)
                if choice.delta.content:
                    yield Piece(choice.delta.content)


def events(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The data of each event up to the last. Raises PacelineError when the stream breaks off before that."""
    for line in response:
        name, _, value = line.strip().partition(b":")
        if name == b"data":
            if value.strip() == END:
                return
            yield value
    raise PacelineError("the server ended the stream before the answer was complete")


def parse_chunk(data: bytes) -> Chunk:
    """One event. Raises PacelineError for an error event, and for something else than a chunk."""
    try:
        chunk = msgspec.json.decode(data, type=Chunk)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PacelineError(f"the server sent an event that is no chunk of an answer: {error}") from None
    if bytes(chunk.error) != b"null":
        raise PacelineError(error_text(data, "an error"))
    return chunk


def error_text(data: bytes, otherwise: str) -> str:
    """The message of an error body."""
    try:
        content = msgspec.json.decode(data)
        error = content.get("error", content)
        return str(error.get("message", otherwise) if isinstance(error, dict) else error)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return f"{otherwise}: {data.decode('utf-8', 'replace')[:MAX_TEXT_SHOWN]}"
