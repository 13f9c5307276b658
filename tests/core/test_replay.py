"""The contract of the three clocks: a scheduler's recorded inputs, fed to a fresh one, give identical plans."""

from random import Random

import pytest
from core_world import World, make_scheduler
from fuzz import operate, random_config

from paceline.errors import ContextLengthError


@pytest.mark.parametrize("seed", range(12))
def test_recorded_inputs_replay_to_identical_plans(seed: int) -> None:
    random = Random(f"replay {seed}")
    world = World(random_config(random))
    for _ in range(250):
        operate(world, random, is_calm=False)
    world.drain()
    fresh, plan, num_plans = make_scheduler(world.config), None, 0
    for call, value in world.journal:
        if call == "submit":
            try:
                fresh.submit(value)
            except ContextLengthError:
                assert (value.request_id, 0) not in world.expected
        elif call == "cancel":
            fresh.cancel(value)
        elif call == "finish":
            fresh.finish(*value)
        elif call == "schedule":
            plan = fresh.schedule()
            assert plan == value, f"plan {num_plans} differs"
            num_plans += 1
        else:
            assert plan is not None
            fresh.update(plan, value)
    assert num_plans > 50
    assert fresh.num_preemptions == world.scheduler.num_preemptions
    assert not fresh.has_work()
