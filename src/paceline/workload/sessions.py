"""Sessions: several turns of one user or agent, with time to think between, each turn replaying the ones before."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from paceline.workload.checks import check_whole
from paceline.workload.distributions import Distribution, Fixed, whole_at
from paceline.workload.draws import open_unit

MAX_TURNS = 10_000
MAX_PROMPT_TOKENS = 2**24
AT_ONCE = Fixed(0.0)


@dataclass(frozen=True, slots=True)
class Sessions:
    """`think_s` lies between an answer and the next turn. With `replays_history` a turn's prompt is the previous
    prompt, the previous answer and new tokens (chats and agent loops); without, each turn stands alone.

    A session ends early when its next prompt would be longer than `max_prompt_tokens` (its first is always sent).
    """

    num_turns: Distribution
    think_s: Distribution = AT_ONCE
    replays_history: bool = True
    max_prompt_tokens: int = MAX_PROMPT_TOKENS

    def __post_init__(self) -> None:
        check_whole("max_prompt", self.max_prompt_tokens, 1, MAX_PROMPT_TOKENS)

    def think_times(self, random: Random) -> Iterator[float]:
        """The think time before each turn of one session; the first turn's is 0."""
        num_turns = min(MAX_TURNS, whole_at(self.num_turns, open_unit(random)))
        yield 0.0
        for _ in range(num_turns - 1):
            yield self.think_s.at(open_unit(random))
