"""What the API process sees of its requests: times, lengths, endings, refusals. Written as things happen.

The unit is a choice: a request of two prompts and n = 3 has six, each with its own first token and its own end, as the
engine has six sequences. Times and lengths of whole choices are those of choices that ended by themselves (stop or
length); one that was cut short by its client would only blur them.
"""

from collections import Counter
from dataclasses import dataclass

from paceline.core.histogram import Histogram
from paceline.core.request import FinishReason
from paceline.observe import buckets

ABORT = "abort"
ERROR = "error"
ENDINGS = (str(FinishReason.STOP), str(FinishReason.LENGTH), ABORT, ERROR)


@dataclass(frozen=True, slots=True)
class FinishedChoice:
    """A choice that ended by itself. Times are of one clock, in seconds; None is what never happened.

    `submitted_s`: it went to the engine; `admitted_s`: the engine let it in. `num_tokens` are those a client pays for.
    """

    reason: str
    arrival_s: float
    submitted_s: float
    admitted_s: float | None
    first_token_s: float | None
    end_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_tokens: int


class RequestMetrics:
    """Histograms and counts over the life of this process."""

    def __init__(self) -> None:
        self.time_to_first_token = Histogram(buckets.FIRST_TOKEN_S)
        self.inter_token_latency = Histogram(buckets.GAP_S)
        self.time_per_output_token = Histogram(buckets.GAP_S)
        self.e2e_latency = Histogram(buckets.DURATION_S)
        self.queue_time = Histogram(buckets.DURATION_S)
        self.prefill_time = Histogram(buckets.DURATION_S)
        self.decode_time = Histogram(buckets.DURATION_S)
        self.inference_time = Histogram(buckets.DURATION_S)
        self.prompt_tokens = Histogram(buckets.TOKENS)
        self.computed_tokens = Histogram(buckets.TOKENS)
        self.generation_tokens = Histogram(buckets.TOKENS)
        self.max_tokens = Histogram(buckets.TOKENS)
        self.num_choices = Histogram(buckets.CHOICES)
        self.finished: Counter[str] = Counter(dict.fromkeys(ENDINGS, 0))
        self.rejected: Counter[str] = Counter()
        self.http: Counter[tuple[str, ...]] = Counter()

    def accept(self, num_choices: int, max_tokens: int | None) -> None:
        """A request was handed to the engine; what it asked for."""
        self.num_choices.observe(num_choices)
        if max_tokens is not None:
            self.max_tokens.observe(max_tokens)

    def reject(self, code: str) -> None:
        """A request for generation was refused, with the error code its client got."""
        self.rejected[code] += 1

    def break_off(self, num_choices: int, is_our_fault: bool) -> None:
        """Choices that will not end by themselves: their client left, or something failed here."""
        self.finished[ERROR if is_our_fault else ABORT] += num_choices

    def finish(self, choice: FinishedChoice) -> None:
        """A choice ended by itself."""
        self.finished[choice.reason] += 1
        self.e2e_latency.observe(choice.end_s - choice.arrival_s)
        self.prompt_tokens.observe(choice.num_prompt_tokens)
        self.computed_tokens.observe(choice.num_prompt_tokens - choice.num_cached_tokens)
        self.generation_tokens.observe(choice.num_tokens)
        if choice.admitted_s is not None:
            self.queue_time.observe(choice.admitted_s - choice.submitted_s)
            self.inference_time.observe(choice.end_s - choice.admitted_s)
        if choice.first_token_s is None:
            return
        decode_s = choice.end_s - choice.first_token_s
        self.decode_time.observe(decode_s)
        if choice.num_tokens > 1:
            self.time_per_output_token.observe(decode_s / (choice.num_tokens - 1))
        if choice.admitted_s is not None:
            self.prefill_time.observe(choice.first_token_s - choice.admitted_s)
