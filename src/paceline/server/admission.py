"""One session's way to the engine and out again: tokens reserved, prompts submitted, the deadline set, all undone."""

import asyncio
import time
from collections.abc import Sequence

from paceline.errors import RateLimitError, RequestTimeoutError
from paceline.server.embedding_session import EmbeddingSession
from paceline.server.record import RequestRecord
from paceline.server.session import Session


class Admission:
    """Whoever makes one closes it, however the request ends."""

    def __init__(self, session: Session | EmbeddingSession, record: RequestRecord, timeout_s: float | None) -> None:
        session.timing.arrival_s = record.arrival_s
        record.session = session
        self._session = session
        self._record = record
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._num_reserved = 0.0

    def submit(self, prompts: Sequence[Sequence[int]]) -> None:
        """Queue the prompts. Raises RateLimitError, and what `Session.submit` raises."""
        self._reserve(self._session.most_tokens(prompts))
        self._session.submit(prompts)
        if self._timeout_s is not None:
            error = RequestTimeoutError(
                f"the request was not finished {self._timeout_s:g} s after its arrival (--request-timeout)"
            )
            # The loop's clock is time.monotonic. A deadline already past fires in the next turn.
            deadline_s = self._record.arrival_s + self._timeout_s
            self._timer = asyncio.get_running_loop().call_at(deadline_s, self._session.fail, error)

    def close(self) -> None:
        """Cancel what has not finished, stop the clock, and settle the tokens. What was refused has used none."""
        self._session.close()
        if self._timer is not None:
            self._timer.cancel()
        if self._num_reserved and self._record.limits is not None and self._record.limits.tokens is not None:
            usage = self._session.usage
            is_refused = self._record.status is not None and self._record.status >= 400
            num_used = 0 if is_refused else usage.prompt_tokens + usage.completion_tokens
            self._record.limits.tokens.put(self._num_reserved - num_used, time.monotonic())

    def _reserve(self, num_tokens: int) -> None:
        bucket = None if self._record.limits is None else self._record.limits.tokens
        if bucket is None:
            return
        now_s = time.monotonic()
        wait_s = bucket.wait_s(num_tokens, now_s)
        if wait_s > 0:
            raise RateLimitError(
                f"this key may use {bucket.per_minute} tokens a minute (--rate-limit-tokens); prompt and max_tokens "
                f"come to {num_tokens}, and {max(0, int(bucket.level(now_s)))} are left: try again in {wait_s:.1f} s, "
                "or lower max_tokens",
                wait_s,
            )
        self._num_reserved = bucket.take(num_tokens, now_s)
