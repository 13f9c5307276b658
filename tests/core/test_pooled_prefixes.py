"""What a pooled request may take from the prefix cache, and what it leaves there."""

import pytest
from core_world import Ask, World, WorldConfig

from paceline.core.request import Pooling

CONFIG = WorldConfig(block_size=4, num_blocks=32, max_num_seqs=4, max_step_tokens=64)
PROMPT = Ask(num_shared=15, tail=(2,), max_tokens=2)


def computed_by(world: World, pooling: Pooling | None) -> int:
    """Tokens that the prompt costs when it comes now, pooled so."""
    before = world.executor.num_computed_tokens
    world.submit(Ask(PROMPT.stem, PROMPT.num_shared, PROMPT.tail, max_tokens=1, pooling=pooling))
    world.drain()
    return world.executor.num_computed_tokens - before


@pytest.mark.parametrize(("pooling", "num_computed"), [(Pooling.LAST, 1), (Pooling.MEAN, 16), (None, 1)])
def test_only_a_mean_computes_a_cached_prompt_again(pooling: Pooling | None, num_computed: int) -> None:
    world = World(CONFIG)
    world.submit(PROMPT)
    world.drain()
    assert computed_by(world, pooling) == num_computed


@pytest.mark.parametrize("pooling", list(Pooling))
def test_what_a_pooled_request_computed_serves_the_next(pooling: Pooling) -> None:
    world = World(CONFIG)
    assert computed_by(world, pooling) == 16
    assert computed_by(world, None) == 1


def test_equal_means_that_arrive_together_are_each_computed() -> None:
    world = World(CONFIG)
    for _ in range(3):
        world.submit(Ask(num_shared=12, pooling=Pooling.MEAN))
    world.drain()
    assert world.executor.num_computed_tokens == 36


def test_equal_prompts_pooled_at_their_last_token_share_one_computation() -> None:
    world = World(CONFIG)
    for _ in range(3):
        world.submit(Ask(num_shared=12, pooling=Pooling.LAST))
    world.drain()
    assert world.executor.num_computed_tokens == 12 + 1 + 1


@pytest.mark.parametrize("num_blocks", [8, 10, 12])
def test_a_preempted_mean_starts_anew(num_blocks: int) -> None:
    """Two streams outgrow the pool while the mean is computed; the world compares its state with the plain run's."""
    world = World(WorldConfig(4, num_blocks, max_num_seqs=4, max_step_tokens=4, reserves=False))
    for stem in (0, 1):
        world.submit(Ask(stem, num_shared=12, max_tokens=20))
    world.submit(Ask(stem=2, num_shared=15, pooling=Pooling.MEAN, priority=1))
    world.drain()
    assert world.events["resume a mean"] > 0
