"""The running state of one sequence. Only the scheduler writes it.

Token debt, not phases: a sequence knows `tokens` (prompt, then outputs) and has computed the KV of the first
`num_computed`. A step pays part of the debt; the step that pays the last of it samples one more token, or several
where the next ones are certain.

    WAITING ──admit──▶ RUNNING ──retire──▶ FINISHED
       ▲ ▲               │
       │ └──preempt──────┘
    FOLLOWING  (waits for a running sequence that is computing the prefix both share)
"""

from array import array
from dataclasses import dataclass, field
from enum import Enum

from paceline.core.kv import Lease
from paceline.core.request import FinishReason, Pooling, Request, SamplingParams, SequenceId


class State(Enum):
    """Where the sequence is; see the module's drawing."""

    WAITING = "waiting"
    FOLLOWING = "following"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """One of a request's continuations. `num_cached` is what its first admission, at `admitted_s`, found in the prefix
    cache, `num_lost` what it had computed when it was last preempted; `num_scored` counts prompt positions whose scores
    were handed up (position 0 has none and counts as done); `num_admitted` is how many tokens it knew when last
    admitted; `num_prompt` is the prompt's length, kept since every step asks."""

    sequence_id: SequenceId
    request: Request
    choice_index: int
    sampling: SamplingParams
    tokens: "array[int]"
    state: State = State.WAITING
    num_computed: int = 0
    num_cached: int | None = None
    admitted_s: float | None = None
    num_scored: int = 1
    num_preemptions: int = 0
    num_lost: int = 0
    num_admitted: int = 0
    last_served_step: int = 0
    lease: Lease | None = None
    row: int | None = None
    finish_reason: FinishReason | None = None
    is_leading: bool = False
    followers: "list[tuple[int, Sequence]]" = field(default_factory=list)
    num_prompt: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_prompt = len(self.request.prompt)

    @property
    def num_output(self) -> int:
        """Tokens sampled so far."""
        return len(self.tokens) - self.num_prompt

    @property
    def debt(self) -> int:
        """Known tokens whose KV is not computed."""
        return len(self.tokens) - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """All it owes came of its last step: a sampled token, with those that a grammar forced or that were drafted; or
        it owes one token, whatever it is.
        """
        return self.num_computed >= self.num_admitted or len(self.tokens) - self.num_computed == 1

    @property
    def num_remaining(self) -> int:
        """Tokens it may still sample."""
        return self.request.stop.max_tokens - self.num_output

    @property
    def match_limit(self) -> int:
        """How much of a cached prefix it may use: it needs the logits after its last token, and of every unscored
        position. The cache has no hidden states, so a mean over all of them starts at 0.
        """
        if self.request.pooling is Pooling.MEAN:
            return 0
        if self.sampling.num_prompt_logprobs is not None and self.num_scored < self.num_prompt:
            return self.num_scored - 1
        return len(self.tokens) - 1

    @property
    def queue_key(self) -> tuple[int, float, int]:
        """Order of the waiting queue: priority, then arrival, then number."""
        return (self.request.priority, self.request.arrival_s, self.sequence_id)

    def stop_reason(self) -> FinishReason | None:
        """Why it ends after its last token, if it does."""
        rule, num_output = self.request.stop, len(self.tokens) - self.num_prompt
        if self.tokens[-1] in rule.stop_token_ids and num_output > 0 and num_output >= rule.min_tokens:
            return FinishReason.STOP
        return FinishReason.LENGTH if num_output >= rule.max_tokens else None
