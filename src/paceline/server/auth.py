"""Who may use /v1: whoever bears one of the API keys. Probes need none."""

from collections.abc import Sequence

from fastapi import Request

from paceline.errors import AuthenticationError
from paceline.server.record import record_of


def check_key(request: Request, api_keys: Sequence[str]) -> None:
    """Raise AuthenticationError unless the request bears a key, or none is asked for."""
    if api_keys and record_of(request.scope).key_position is None:
        raise AuthenticationError("the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
