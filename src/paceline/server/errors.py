"""Errors as OpenAI clients expect them: ``{"error": {"message", "type", "param", "code"}}`` with the right status."""

import math

import msgspec
from fastapi import Response

from paceline.errors import OverloadedError, PacelineError, RequestError, UnavailableError


def error_body(error: PacelineError) -> bytes:
    """The error object, as JSON. Also the data of an error event in a stream."""
    param = error.param if isinstance(error, RequestError) else None
    content = {"message": error.message, "type": error.error_type, "param": param, "code": error.code}
    return msgspec.json.encode({"error": content})


def error_response(error: PacelineError) -> Response:
    """The whole answer, with Retry-After where trying again makes sense."""
    headers = {}
    if isinstance(error, OverloadedError | UnavailableError):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(error_body(error), error.status, headers, media_type="application/json")
