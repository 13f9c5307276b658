"""Steps of a recording as (what was in it, how long it took): what a step time is fitted to.

The contents come from the plans of a fresh scheduler, counted by the costed executor, so that a law is fitted to the
same counts that it will be asked about.
"""

from collections.abc import Callable, Iterable

from paceline.core.plan import StepPlan
from paceline.core.request import SequenceId
from paceline.costs.step import StepWork
from paceline.engine.journal import Header, Line
from paceline.sim.executor import CostedExecutor, VirtualClock
from paceline.sim.replay import Replay

MeasuredStep = tuple[StepWork, float]


class WorkSeen:
    """A step time that keeps the work it was asked about, and charges nothing."""

    def __init__(self) -> None:
        self.last = StepWork()

    def step_s(self, work: StepWork) -> float:
        """Nothing."""
        self.last = work
        return 0.0


def measured_steps(lines: Iterable[Line]) -> list[MeasuredStep]:
    """All steps of a recording. Raises PlanDiffersError: then the contents of its steps are not known."""
    found: list[MeasuredStep] = []
    replay: Replay | None = None
    for line in lines:
        if isinstance(line, Header):
            replay = Replay(line, _counter(line, found))
            continue
        assert replay is not None, "a recording begins with a header"
        for _ in replay.apply(line):
            pass  # the requests that ended; only steps are wanted
    return found


def _counter(header: Header, found: list[MeasuredStep]) -> Callable[[StepPlan, float], None]:
    """Counts the plans of one part of a recording into `found`."""
    seen = WorkSeen()
    executor = CostedExecutor(header.max_num_seqs, seen, VirtualClock(), _endless)

    def count(plan: StepPlan, duration_s: float) -> None:
        executor.execute(plan)
        found.append((seen.last, duration_s))

    return count


def _endless(_: SequenceId) -> int:
    """Answers are as long as the recording says; the counting executor need not know."""
    return 1 << 30
