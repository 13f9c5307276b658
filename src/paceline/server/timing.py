"""When the things of one HTTP request happened and how its choices ended: one record, written by the session.

Metrics and the request log read it, while the request runs or after; neither keeps times of its own. All times are
seconds of `time.monotonic`, as this process saw them: a token's time is when its output was taken from the engine.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class RequestTiming:
    """The record. `arrival_s`: the request line had come; `submitted_s`: its prompts went to the engine.

    `finish_reasons` gets one entry a choice as choices end, in order of their ends; `error_code` names the error that
    ended the request, if one did.
    """

    arrival_s: float
    submitted_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    first_token_s_of: dict[int, float] = field(default_factory=dict)
    finish_reasons: list[str] = field(default_factory=list)
    error_code: str | None = None
    _last_token_s_of: dict[int, float] = field(default_factory=dict)

    def record_tokens(self, choice_index: int, now_s: float) -> float | None:
        """Tokens of a choice came; returns the seconds since its last ones (the inter-token latency), None for the
        first.
        """
        if self.first_token_s is None:
            self.first_token_s = now_s
        self.last_token_s = now_s
        before_s = self._last_token_s_of.get(choice_index)
        self._last_token_s_of[choice_index] = now_s
        if before_s is None:
            self.first_token_s_of[choice_index] = now_s
            return None
        return now_s - before_s

    @property
    def ttft_s(self) -> float | None:
        """Arrival to the first token of any choice; None before it."""
        return None if self.first_token_s is None else self.first_token_s - self.arrival_s
