"""Judges from outside whether an engine process makes progress. Owns no clock: time is an argument, in seconds.

An engine that has work makes steps. Its gauges carry the index of the last one; an answer with a new index, or one that
says there is no work, is progress. A process that hangs inside a step cannot answer at all, which is no progress
either. How long a process is silent while it has nothing to do is not judged.
"""

from paceline.engine.contract import EngineGauges

CHECKS_PER_TIMEOUT = 4
LONGEST_CHECK_S = 1.0


class ProgressWatch:
    """The judgement over one engine process. `timeout_s` 0: never stalled."""

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._progress_s = now_s
        self._step_index = -1

    @property
    def check_s(self) -> float:
        """How often to ask: a stall is seen at most this long after the timeout."""
        return min(LONGEST_CHECK_S, self._timeout_s / CHECKS_PER_TIMEOUT)

    def saw_idle(self, now_s: float) -> None:
        """Nothing is asked of the engine now; also the beginning of a process."""
        self._progress_s = now_s

    def saw_gauges(self, gauges: EngineGauges, now_s: float) -> None:
        """The engine answered."""
        # A grammar being compiled needs no step, and has a time limit of its own.
        has_work = gauges.num_running + gauges.num_waiting > gauges.num_compiling
        if not has_work or gauges.step_index != self._step_index:
            self._progress_s = now_s
        self._step_index = gauges.step_index

    def stalled_s(self, now_s: float) -> float:
        """Seconds without progress once they pass the timeout, else 0."""
        silent_s = now_s - self._progress_s
        return silent_s if self._timeout_s and silent_s > self._timeout_s else 0.0
