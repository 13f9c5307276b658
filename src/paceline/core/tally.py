"""What a scheduler counts for whoever watches it; no decision depends on it. Nothing here ever falls.

Each prompt token is counted once, when its sequence is first admitted. A sequence that resumes after a preemption finds
its own work in the prefix cache, or has to repeat it: neither is a hit, a query or a prompt token again.
"""

from paceline.core.histogram import STEP_TOKENS_BOUNDS, Histogram
from paceline.core.sequence import Sequence


class Tally:
    """Counts of tokens since the start. A prompt of n choices counts n times."""

    def __init__(self) -> None:
        self.num_prompt_tokens = 0
        self.num_queried_tokens = 0
        self.num_cached_tokens = 0
        self.num_recomputed_tokens = 0
        self.num_spared_tokens = 0
        self.num_generated_tokens = 0
        self.step_tokens = Histogram(STEP_TOKENS_BOUNDS)

    def admit(self, sequence: Sequence, num_found: int) -> None:
        """A sequence enters with `num_found` tokens computed. On return from a preemption that can be fewer than it had
        computed, and more too, when another sequence computed the same.
        """
        if sequence.num_cached is not None:
            self.num_recomputed_tokens += max(0, sequence.num_lost - num_found)
            self.num_spared_tokens += max(0, num_found - sequence.num_lost)
            return
        self.num_prompt_tokens += sequence.num_prompt
        self.num_cached_tokens += num_found
        if sequence.match_limit > 0:
            self.num_queried_tokens += sequence.num_prompt
