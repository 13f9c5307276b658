"""Limits a key in requests and tokens a minute, by two token buckets. Owns no clock: time is an argument, in seconds.

A bucket holds at most one minute's allowance and refills evenly. A request takes one from the first; its tokens are
*reserved* before work is queued, as prompt + max_tokens of every choice, and *settled* by what was really used when it
ends, in whatever way. A reservation larger than the bucket takes the whole bucket, so that no request is refused for
ever; the settlement then leaves a debt that later requests wait for. Over any time t, a key that settles in time
uses at most rate * (t + one minute), plus what its last request used beyond its reservation.

Worked example, 600 tokens a minute (10 a second): a request with 100 prompt tokens and max_tokens 200 reserves 300 of
600; it stops after 50 tokens, and 150 come back. One with max_tokens 4000 takes the bucket as it is when full, uses
2000, and leaves a debt of 1400: the next is let in after (1400 + its reservation) / 10 seconds.
"""

from dataclasses import dataclass

WINDOW_S = 60.0


class Bucket:
    """One allowance: `per_minute`, full at first. `level` may be negative: a debt."""

    def __init__(self, per_minute: int, now_s: float) -> None:
        self.per_minute = per_minute
        self._level = float(per_minute)
        self._updated_s = now_s

    def level(self, now_s: float) -> float:
        """What may be taken now."""
        refilled = self._level + (now_s - self._updated_s) * self.per_minute / WINDOW_S
        return min(refilled, float(self.per_minute))

    def wait_s(self, amount: float, now_s: float) -> float:
        """Seconds until `amount`, or a full bucket if that is less, may be taken; 0 when it may be now."""
        missing = min(amount, self.per_minute) - self.level(now_s)
        return max(0.0, missing * WINDOW_S / self.per_minute)

    def take(self, amount: float, now_s: float) -> float:
        """Take `amount`, or the full bucket if that is less; returns what was taken."""
        taken = min(amount, float(self.per_minute))
        self.put(-taken, now_s)
        return taken

    def put(self, amount: float, now_s: float) -> None:
        """Give back `amount`; a negative one takes more, into debt if need be."""
        self._level = min(self.level(now_s) + amount, float(self.per_minute))
        self._updated_s = now_s


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The buckets of one key; None where there is no limit."""

    requests: Bucket | None
    tokens: Bucket | None

    @classmethod
    def of(cls, requests_per_minute: int | None, tokens_per_minute: int | None, now_s: float) -> "KeyLimits":
        """Full buckets."""
        return cls(
            None if requests_per_minute is None else Bucket(requests_per_minute, now_s),
            None if tokens_per_minute is None else Bucket(tokens_per_minute, now_s),
        )

    def headers(self, now_s: float) -> list[tuple[bytes, bytes]]:
        """The state as OpenAI's headers: the limit, what remains, and when the bucket is full again."""
        headers: list[tuple[bytes, bytes]] = []
        for name, bucket in ((b"requests", self.requests), (b"tokens", self.tokens)):
            if bucket is not None:
                remaining = max(0, int(bucket.level(now_s)))
                reset_s = bucket.wait_s(bucket.per_minute, now_s)
                headers += [
                    (b"x-ratelimit-limit-" + name, b"%d" % bucket.per_minute),
                    (b"x-ratelimit-remaining-" + name, b"%d" % remaining),
                    (b"x-ratelimit-reset-" + name, b"%.3fs" % reset_s),
                ]
        return headers
