"""The step loop: one scheduler, one executor, whatever the clock. Engine, simulator and tests turn the same crank."""

from paceline.core.output import SequenceOutput
from paceline.core.plan import Executor
from paceline.core.scheduler import Scheduler


class StepLoop:
    """Runs plans of `scheduler` on `executor`, one at a time."""

    def __init__(self, scheduler: Scheduler, executor: Executor) -> None:
        self.scheduler = scheduler
        self._executor = executor

    def step(self, now_s: float = 0.0) -> list[SequenceOutput]:
        """One step: schedule, execute, update. Nothing to do gives no outputs. `now_s`: this loop's clock."""
        plan = self.scheduler.schedule(now_s)
        if plan is None:
            return []
        return self.scheduler.update(plan, self._executor.execute(plan))
