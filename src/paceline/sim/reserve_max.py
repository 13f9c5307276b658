"""Reserve-max: the classic admission rule, which leaves room for every running sequence's whole max_tokens.

Nothing is ever preempted, and most of the pool stays empty, since few answers are as long as they may be. Kept to show
what paging with learned lengths is worth.
"""

from paceline.core.policy import Forecast
from paceline.core.sequence import Sequence


class ReserveMax:
    """A Reserve that learns nothing."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def observe(self, num_output: int) -> None:
        """Whatever was used, the next one may use it all."""

    def forecast(self) -> Forecast:
        """A sum, sequence by sequence."""
        return MaxForecast(self._block_size)


class MaxForecast:
    """Blocks that the sequences may still come to need."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._num_blocks = 0

    def add(self, sequence: Sequence, num_held: int) -> None:
        """From the blocks it holds to the most it may hold."""
        most = num_held + sequence.num_remaining
        self._num_blocks += -(-most // self._block_size) - -(-num_held // self._block_size)

    def peak_blocks(self) -> float:
        """The sum."""
        return float(self._num_blocks)
