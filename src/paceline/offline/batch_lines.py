"""Lines of batch files, in and out, as OpenAI's batch API has them.

In:  {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
Out: {"id": "batch_req_…", "custom_id": "a", "response": {"status_code": 200, "request_id": "…", "body": {…}},
      "error": null}

A line that can't be asked becomes an answer with the reason; so does a refusal, beside the server's own body. Answers
to lines without a readable custom_id are told apart by their id, which then names the line.
"""

import hashlib
import re
from dataclasses import dataclass

import msgspec

from paceline.offline.batch_ledger import LineKey

MAX_LINE_BYTES = 16 * 2**20
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
BAD_LINE = "invalid_line"
LINE_ID = re.compile(r"batch_line_(\d{1,18})")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_TEXT_SHOWN = 300


class Identity(msgspec.Struct, frozen=True):
    """The part of a line that names it."""

    custom_id: str


class Fields(msgspec.Struct, frozen=True):
    """The rest of it."""

    method: str
    url: str
    body: msgspec.Raw


class BodyGlance(msgspec.Struct, frozen=True):
    """What we need to know of a body; the server judges the rest."""

    model: object = None
    stream: object = None


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A line that can be asked. `body` is sent as it stands."""

    number: int
    custom_id: str
    route: str
    body: bytes
    model: str | None

    @property
    def key(self) -> LineKey:
        """What the ledger knows it by."""
        return self.custom_id


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that can't."""

    number: int
    custom_id: str | None
    reason: str

    @property
    def key(self) -> LineKey:
        """What the ledger knows it by."""
        return b"line %d" % self.number if self.custom_id is None else self.custom_id


class Failure(msgspec.Struct, frozen=True):
    """Why there is no good answer."""

    code: str
    message: str


class Response(msgspec.Struct, frozen=True):
    """What the server said."""

    status_code: int
    request_id: str
    body: msgspec.Raw


class Answer(msgspec.Struct, frozen=True):
    """One line of the output file."""

    id: str
    custom_id: str | None
    response: Response | None
    error: Failure | None


class AnswerName(msgspec.Struct, frozen=True):
    """What tells which line an answer belongs to."""

    id: str
    custom_id: str | None


def parse_line(number: int, data: bytes) -> BatchRequest | BadLine:
    """One input line; `number` counts from 1."""
    if len(data) > MAX_LINE_BYTES:
        return BadLine(number, None, f"line {number} is longer than {MAX_LINE_BYTES} bytes")
    custom_id = None
    try:
        custom_id = msgspec.json.decode(data.removeprefix(BYTE_ORDER_MARK), type=Identity).custom_id
        fields = msgspec.json.decode(data.removeprefix(BYTE_ORDER_MARK), type=Fields)
        glance = msgspec.json.decode(fields.body, type=BodyGlance)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return BadLine(number, custom_id, f"line {number} is no request: {error}")
    except RecursionError:
        return BadLine(number, custom_id, f"line {number} is no request: it is nested too deeply")
    if fields.method != "POST":
        return BadLine(number, custom_id, f"line {number}: method must be POST, got {fields.method[:20]!r}")
    if fields.url not in ROUTES:
        known = ", ".join(ROUTES)
        return BadLine(number, custom_id, f"line {number}: url must be one of {known}, got {fields.url[:60]!r}")
    if glance.stream:
        return BadLine(number, custom_id, f"line {number}: body.stream has no place in a batch; leave it out")
    model = glance.model if isinstance(glance.model, str) else None
    return BatchRequest(number, custom_id, fields.url, bytes(fields.body), model)


def answer_to_bad_line(line: BadLine) -> Answer:
    """The output line that gives the reason."""
    return Answer(answer_id(line.number, line.custom_id), line.custom_id, None, Failure(BAD_LINE, line.reason))


def answer_to_request(request: BatchRequest, status: int, request_id: str, body: bytes) -> Answer:
    """The output line with the server's answer. Every status but 200 is an error, whatever else the body says."""
    try:
        compact = msgspec.Raw(msgspec.json.format(body, indent=-1))
        failure = None if status == 200 else failure_of(status, body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body.decode("utf-8", "replace")[:MAX_TEXT_SHOWN]
        compact = msgspec.Raw(b"null")
        failure = Failure(
            "invalid_answer", f"the server answered status {status} with something else than JSON: {text}"
        )
    response = Response(status, request_id, compact)
    return Answer(answer_id(request.number, request.custom_id), request.custom_id, response, failure)


def failure_of(status: int, body: bytes) -> Failure:
    """Code and message of an error body: OpenAI's object, or its fields without the object around."""
    content = msgspec.json.decode(body)
    error = content.get("error", content) if isinstance(content, dict) else {}
    error = error if isinstance(error, dict) else {"message": error}
    code, message = error.get("code"), error.get("message")
    return Failure(str(code or f"status_{status}"), str(message or f"the server answered with status {status}"))


def answer_id(number: int, custom_id: str | None) -> str:
    """An answer's id: of its custom_id, else of its line."""
    if custom_id is None:
        return f"batch_line_{number}"
    return f"batch_req_{hashlib.blake2b(custom_id.encode(), digest_size=12).hexdigest()}"


def key_of(name: AnswerName) -> LineKey:
    """What the ledger knows the answered line by."""
    if name.custom_id is not None:
        return name.custom_id
    return b"line %d" % int(match[1]) if (match := LINE_ID.fullmatch(name.id)) else b""
