"""How fast the queue drains, measured, so that a refused client is told when to come back. Time is an argument.

Samples are taken when requests arrive, at most one a second: an overloaded engine has arrivals, an idle one needs no
estimate. Nothing is done a step.
"""

from collections import deque

SAMPLE_INTERVAL_S = 1.0
WINDOW_S = 30.0
SETTLING_S = 5.0
SHORTEST_S, LONGEST_S = 1.0, 60.0


class DrainRate:
    """Counts of sequences done at some moments of the last half minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, now_s: float, num_done: int) -> None:
        """`num_done` sequences have ended so far, in whatever way."""
        if self._samples and now_s - self._samples[-1][0] < SAMPLE_INTERVAL_S:
            return
        self._samples.append((now_s, num_done))
        while now_s - self._samples[0][0] > WINDOW_S:
            self._samples.popleft()

    def wait_s(self, now_s: float, num_done: int, num_waiting: int) -> float:
        """Seconds until those now waiting have been let in, at the pace of the window; between 1 and 60.

        While nothing has ended: the shortest in the first seconds, which tell nothing, then the longest.
        """
        first_s, first_done = self._samples[0] if self._samples else (now_s, num_done)
        elapsed_s, num_ended = now_s - first_s, num_done - first_done
        if num_ended == 0:
            return SHORTEST_S if elapsed_s < SETTLING_S else LONGEST_S
        return min(max(num_waiting * elapsed_s / num_ended, SHORTEST_S), LONGEST_S)
