"""API keys: read from a file at start, and matched in the same time for any wrong one."""

import secrets
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import ConfigError

MAX_KEYS = 1000
"""Every request compares every key: a thousand take a fifth of a millisecond."""


def key_index(authorization: str, api_keys: Sequence[str]) -> int | None:
    """Which of the keys an Authorization header bears; None for none."""
    scheme, _, given = authorization.partition(" ")
    matches = [secrets.compare_digest(given.strip().encode(), key.encode()) for key in api_keys]
    return matches.index(True) if scheme.lower() == "bearer" and any(matches) else None


def read_key_file(path: str) -> tuple[str, ...]:
    """The keys of a file, one a line; blank lines and lines that begin with # are skipped.

    Raises ConfigError when there are none: a server that was to be guarded never starts unguarded.
    """
    try:
        text = Path(path).read_text(encoding="ascii")
    except OSError as error:
        raise ConfigError(f"can't read --api-key-file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"--api-key-file {path} holds a character that is not ASCII; keys are ASCII text") from None
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not 1 <= len(keys) <= MAX_KEYS:
        raise ConfigError(f"--api-key-file {path} must hold 1 to {MAX_KEYS} keys, one a line, got {len(keys)}")
    return keys
