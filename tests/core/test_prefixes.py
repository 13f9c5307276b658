"""Identical prompts that arrive together are computed once."""

import time

import pytest
from core_oracles import next_token
from core_world import Ask, NoReserve, World, WorldConfig

from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.request import Request, RequestId, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.exec.scripted import ScriptedExecutor


@pytest.mark.parametrize("budget", [16, 100, 4096])
def test_thirty_two_prompts_with_one_prefix_compute_it_once(budget: int) -> None:
    """Prefix 1,000, suffixes of 32: at most 1,000 + 32 suffixes + one block each."""
    num_blocks, block_size = 1_024, 16
    scheduler = Scheduler(SchedulerLimits(32, budget, 4_096), KvManager(num_blocks, block_size), NoReserve())
    executor = ScriptedExecutor(block_size, next_token)
    loop = StepLoop(scheduler, executor)
    prefix = [token % 1_000 for token in range(0, 7_000, 7)]
    for number in range(32):
        suffix = [1_000 + number * 32 + index for index in range(32)]
        scheduler.submit(Request(RequestId(number), token_array(prefix + suffix), StopRule(max_tokens=1)))
    cached: dict[RequestId, int] = {}
    while scheduler.has_work():
        cached |= {output.request_id: output.num_cached_tokens for output in loop.step() if output.finish_reason}
    assert executor.num_computed_tokens <= 1_000 + 32 * 32 + 32 * block_size
    assert cached[RequestId(0)] == 0
    assert all(992 <= cached[RequestId(number)] <= 1_000 for number in range(1, 32))


def test_the_leader_is_cancelled_and_a_follower_takes_over() -> None:
    world = World(WorldConfig(block_size=2, num_blocks=32, max_num_seqs=4, max_step_tokens=3))
    leader = world.submit(Ask(num_shared=12))
    world.submit(Ask(num_shared=12, tail=(1,)))
    world.submit(Ask(num_shared=12, tail=(2,)))
    world.step()
    assert leader is not None
    assert (world.scheduler.num_running, world.scheduler.num_waiting) == (1, 2)
    world.cancel(leader)
    world.check()
    world.step()
    assert (world.scheduler.num_running, world.scheduler.num_waiting) == (1, 1), "one of the two leads the other"
    world.drain()
    assert world.events["prefix hit"] >= 2


def test_a_follower_waits_only_for_what_both_share() -> None:
    world = World(WorldConfig(block_size=2, num_blocks=64, max_num_seqs=4, max_step_tokens=2))
    world.submit(Ask(num_shared=40, max_tokens=1))
    short = world.submit(Ask(num_shared=4, max_tokens=1))
    assert short is not None
    for _ in range(4):
        world.step()
        world.check()
    assert (short, 0) in world.endings


def test_a_crowd_of_followers_costs_its_size_not_its_square() -> None:
    kv = KvManager(4_096, 16)
    scheduler = Scheduler(SchedulerLimits(2, 16, 65_536), kv, NoReserve())
    loop = StepLoop(scheduler, ScriptedExecutor(16, next_token))
    prompt = token_array([index % 1_000 for index in range(800)])
    for number in range(5_000):
        scheduler.submit(Request(RequestId(number), prompt, StopRule(max_tokens=1)))
    loop.step()
    assert scheduler.num_running == 1
    start = time.process_time()
    for _ in range(10):
        loop.step()
    assert time.process_time() - start < 5.0, "each step compares every follower with every other"


def test_followers_leave_a_leader_that_goes_on_privately() -> None:
    """Two scored prompts begin with one block; the second finds it published and publishes nothing after it. Who
    follows the second would wait for blocks that are not coming.
    """
    world = World(WorldConfig(block_size=4, num_blocks=128, max_num_seqs=4, max_step_tokens=4))
    world.submit(Ask(num_shared=4, tail=(1,) * 30, max_tokens=1, is_scored=True))
    world.submit(Ask(num_shared=4, tail=(2,) * 90, max_tokens=1, is_scored=True))
    world.submit(Ask(num_shared=4, tail=(2,) * 40, max_tokens=1))
    world.step()
    _, second = world.scheduler.running
    world.step()
    assert [entry[0] for entry in second.followers] == [40]
    while second.num_computed == 0:
        world.step()
        world.check()
    assert second.lease is not None
    assert not second.lease.is_attached
    assert not second.followers
    world.drain()
