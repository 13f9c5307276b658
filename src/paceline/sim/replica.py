"""One simulated replica: a scheduler, a costed executor and a virtual clock of its own, turned by the engine's loop."""

from paceline.core.loop import StepLoop
from paceline.core.output import SequenceOutput
from paceline.core.plan import Executor
from paceline.core.request import Request, SequenceId
from paceline.costs.speculation import Speculation
from paceline.costs.step import StepTime
from paceline.sim.executor import CostedExecutor, VirtualClock
from paceline.sim.policies import Policy, SimScheduler, make_scheduler
from paceline.sim.speculation import SpeculatingExecutor
from paceline.sim.speculation_option import NO_DRAFTS


class Replica:
    """Requests in, outputs out, one step at a time. `num_unanswered`: requests whose last output was not delivered."""

    def __init__(self, policy: Policy, step_time: StepTime, speculation: Speculation = NO_DRAFTS) -> None:
        self.clock = VirtualClock()
        self.scheduler: SimScheduler = make_scheduler(policy)
        self.num_unanswered = 0
        self.num_steps = 0
        self.is_at_work = False
        self._num_submitted = 0
        self._lengths: dict[SequenceId, int] = {}
        lengths = self._lengths.__getitem__
        executor: Executor
        if speculation.num_drafts:
            executor = SpeculatingExecutor(policy.batch, step_time, self.clock, lengths, speculation)
        else:
            executor = CostedExecutor(policy.batch, step_time, self.clock, lengths)
        self._loop = StepLoop(self.scheduler, executor)

    def submit(self, request: Request, output_tokens: int) -> SequenceId:
        """Queue a request that will answer with `output_tokens`. Raises ContextLengthError."""
        self.scheduler.submit(request)
        self._num_submitted += 1
        # Schedulers number sequences from 1 in the order in which they were submitted; each request is one.
        sequence_id = SequenceId(self._num_submitted)
        self._lengths[sequence_id] = output_tokens
        self.num_unanswered += 1
        return sequence_id

    def step(self, now_s: float) -> list[SequenceOutput]:
        """Run a step that starts now; `clock` then says when it ends, and its outputs count from then."""
        self.clock.now_s = now_s
        self.num_steps += 1
        return self._loop.step(now_s)

    def forget(self, sequence_id: SequenceId) -> None:
        """Its last output was delivered."""
        self.num_unanswered -= 1
        del self._lengths[sequence_id]
