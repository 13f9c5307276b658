"""The step loop: one scheduler, one executor, whatever the clock. Engine, simulator and tests turn the same crank."""

from typing import Generic, Protocol, TypeVar

from paceline.core.output import SequenceOutput
from paceline.core.plan import Executor, StepPlan, StepResult


class StepScheduler(Protocol):
    """What the loop asks of a scheduler: the engine's own, the same one recorded, or one it is compared with."""

    def schedule(self, now_s: float = 0.0) -> StepPlan | None:
        """Decide the next step; None when there is nothing to do."""
        ...

    def update(self, plan: StepPlan, result: StepResult) -> list[SequenceOutput]:
        """Record what came of it."""
        ...


Scheduling = TypeVar("Scheduling", bound=StepScheduler)


class StepLoop(Generic[Scheduling]):
    """Runs plans of `scheduler` on `executor`, one at a time."""

    def __init__(self, scheduler: Scheduling, executor: Executor) -> None:
        self.scheduler = scheduler
        self._executor = executor

    def step(self, now_s: float = 0.0) -> list[SequenceOutput]:
        """One step: schedule, execute, update. Nothing to do gives no outputs. `now_s`: this loop's clock."""
        plan = self.scheduler.schedule(now_s)
        if plan is None:
            return []
        return self.scheduler.update(plan, self._executor.execute(plan))
