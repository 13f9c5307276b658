"""Hypothesis drives a world through any order of calls, finds what breaks a promise, and shrinks it.

200 examples of up to 100 steps: about 20,000 steps, with every invariant checked after every one.
"""

import hypothesis.strategies as st
from core_world import Ask, World, WorldConfig
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paceline.core.request import Pooling, RequestId

CONFIGS = st.builds(
    WorldConfig,
    block_size=st.integers(1, 4),
    num_blocks=st.integers(4, 12),
    max_num_seqs=st.integers(1, 6),
    max_step_tokens=st.sampled_from((1, 2, 3, 7, 64)),
    max_context=st.sampled_from((1 << 16, 20)),
    reserves=st.booleans(),
)
ASKS = st.builds(
    Ask,
    stem=st.integers(0, 1),
    num_shared=st.integers(0, 12),
    tail=st.lists(st.integers(0, 2), max_size=3).map(tuple),
    max_tokens=st.integers(0, 10),
    num_sequences=st.integers(1, 3),
    priority=st.integers(0, 2),
    namespace=st.integers(0, 1),
    is_scored=st.booleans(),
    stop_token=st.sampled_from((None, None, 0)),
    min_tokens=st.sampled_from((0, 2)),
    seed=st.integers(0, 3),
    pooling=st.sampled_from((None, None, None, Pooling.LAST, Pooling.MEAN)),
)


class CoreMachine(RuleBasedStateMachine):
    """Every call an engine can make, at every moment it can make it."""

    world: World

    @initialize(config=CONFIGS)
    def begin(self, config: WorldConfig) -> None:
        self.world = World(config)

    @rule(ask=ASKS)
    def submit(self, ask: Ask) -> None:
        self.world.submit(ask)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        live = list(self.world.scheduler.requests)
        self.world.cancel(data.draw(st.sampled_from(live)) if live else RequestId(10**9))

    @precondition(lambda self: self.world.scheduler.requests)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        live = list(self.world.scheduler.requests)
        self.world.finish(data.draw(st.sampled_from(live)), data.draw(st.integers(0, 2)))

    @rule()
    def step(self) -> None:
        self.world.step()

    @rule(count=st.integers(2, 6))
    def several_steps(self, count: int) -> None:
        for _ in range(count):
            self.world.step()
            self.world.check()

    @precondition(lambda self: self.world.plan is None)
    @rule()
    def schedule_and_leave_outstanding(self) -> None:
        self.world.schedule()

    @invariant()
    def every_promise_is_kept(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()


TestCoreMachine = CoreMachine.TestCase
TestCoreMachine.settings = settings(
    max_examples=200,
    stateful_step_count=100,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
