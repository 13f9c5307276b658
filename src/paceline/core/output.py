"""What the step loop hands up: new tokens of one sequence, and how it ended if it did."""

from typing import NamedTuple

from paceline.core.plan import TokenLogprobs
from paceline.core.request import FinishReason, RequestId


class SequenceOutput(NamedTuple):
    """News of choice `choice_index` of a request. Tokens come in order, each exactly once, preempted or not.

    `prompt_scores` continues the list of scored prompt positions (1, 2, ...). `finish_reason` comes once, last;
    whatever token stopped it is the last of `tokens`. `num_cached_tokens`: prompt tokens taken from the prefix cache at
    first admission, which was at `admitted_s` on the loop's clock; a cancelled sequence's ending has None. `pooled`
    comes with the end of a pooled request: its hidden state, float32 [D].

    A named tuple, as RowStep is, and for the same reason.
    """

    request_id: RequestId
    choice_index: int
    tokens: tuple[TokenLogprobs, ...]
    prompt_scores: tuple[TokenLogprobs, ...]
    finish_reason: FinishReason | None
    num_cached_tokens: int
    admitted_s: float | None = None
    pooled: bytes | None = None
