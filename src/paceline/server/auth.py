"""API keys: who may use /v1. Probes need none."""

import secrets
from collections.abc import Sequence

from fastapi import Request

from paceline.errors import AuthenticationError


def check_key(request: Request, api_keys: Sequence[str]) -> None:
    """Raise AuthenticationError unless the request bears a key, or none is asked for. As slow for any wrong key."""
    if not api_keys:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    matches = [secrets.compare_digest(given.strip().encode(), key.encode()) for key in api_keys]
    if scheme.lower() != "bearer" or not any(matches):
        raise AuthenticationError("the API key is missing or wrong; send it as 'Authorization: Bearer KEY'")
