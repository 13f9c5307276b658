"""Reads a request body in pieces and stops at the limit, so that its size never becomes memory."""

from fastapi import Request

from paceline.errors import BodyTooLargeError, RequestError
from paceline.server.limits import MAX_BODY_BYTES


async def read_body(request: Request) -> bytes:
    """The body. Raises BodyTooLargeError as soon as it is known to pass the limit, RequestError when it breaks off."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > MAX_BODY_BYTES:
        raise too_large(f"{declared[:20]} bytes")
    pieces = []
    num_bytes = 0
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise RequestError("the connection closed inside the request body")
        piece = message.get("body", b"")
        num_bytes += len(piece)
        if num_bytes > MAX_BODY_BYTES:
            raise too_large("more")
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


def too_large(size: str) -> BodyTooLargeError:
    """The refusal of a body of this size."""
    return BodyTooLargeError(f"the request body may have at most {MAX_BODY_BYTES} bytes, got {size}")
