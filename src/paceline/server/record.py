"""What is known about one HTTP request, from its arrival to its log line. Made by `Around`, filled in by the routes."""

import re
import secrets
import time
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from paceline.server.embedding_session import EmbeddingSession
from paceline.server.keys import key_index
from paceline.server.rate_limit import KeyLimits
from paceline.server.session import Session

SANE_ID = re.compile(r"[A-Za-z0-9._:+/=-]{1,128}")


@dataclass(slots=True, eq=False)
class RequestRecord:
    """One request. `key_position`: which of our keys it bears (1 is the first), never the key itself.

    `limits`: its key's rate limits, when it counts towards them. `model` and `session` are None where nothing was to be
    computed, `status` is until an answer begins.
    """

    request_id: str
    arrival_s: float
    method: str
    path: str
    key_position: int | None = None
    limits: KeyLimits | None = None
    model: str | None = None
    session: Session | EmbeddingSession | None = None
    status: int | None = None
    is_client_gone: bool = False

    @classmethod
    def of(cls, scope: Scope, api_keys: tuple[str, ...]) -> "RequestRecord":
        """The record of a request that has just arrived, kept in its scope for whoever handles it."""
        headers = Headers(scope=scope)
        wish = headers.get("x-request-id", "")
        request_id = wish if SANE_ID.fullmatch(wish) else f"req-{secrets.token_hex(16)}"
        index = key_index(headers.get("authorization", ""), api_keys)
        record = cls(
            request_id,
            time.monotonic(),
            scope["method"],
            scope["path"],
            key_position=None if index is None else index + 1,
        )
        scope.setdefault("state", {})["record"] = record
        return record


def record_of(scope: Scope) -> RequestRecord:
    """The record of the request that this scope belongs to."""
    record = scope["state"]["record"]
    assert isinstance(record, RequestRecord), "every request passes through Around"
    return record
