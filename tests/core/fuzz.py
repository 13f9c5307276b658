"""The seeded fuzzer of the core: plain random calls into small worlds, everything checked after every call.

    python tests/core/fuzz.py --operations 1000000 --seed 0

Each world lives for `WORLD_OPERATIONS` calls, is drained, and gives way to one of another shape. At the end every rare
event must have happened often enough (`REQUIRED`, once in a thousand operations).
"""

import argparse
import time
from collections import Counter
from random import Random

from core_oracles import live_sequences
from core_world import Ask, World, WorldConfig, situation

from paceline.core.request import Pooling, RequestId

WORLD_OPERATIONS = 1_000
MAX_LIVE = 14
REQUIRED = (
    "evict",
    "partial copy",
    "preempt",
    "fork",
    "pool exactly full",
    "resume",
    "several tokens at once",
    "tokens past an end",
    "cancel waiting",
    "cancel following",
    "cancel prefilling",
    "cancel decoding",
    "cancel preempted",
)


def random_config(random: Random) -> WorldConfig:
    return WorldConfig(
        block_size=random.randint(1, 4),
        num_blocks=random.randint(4, 14),
        max_num_seqs=random.randint(1, 8),
        max_step_tokens=random.choice((1, 2, 3, 5, 8, 64)),
        max_context=random.choice((24, 1 << 16)),
        reserves=random.random() < 0.3,
    )


def random_ask(random: Random) -> Ask:
    max_tokens = random.choice((0, 1, 3, 6, 12))
    return Ask(
        stem=random.randrange(3),
        num_shared=random.randint(0, 10),
        tail=tuple(random.randrange(3) for _ in range(random.randint(0, 3))),
        max_tokens=max_tokens,
        num_sequences=random.choice((1, 1, 1, 2, 3)),
        priority=random.randrange(3),
        namespace=random.randrange(5) // 4,
        is_scored=random.random() < 0.2,
        stop_token=random.choice((None, None, 0, 1)),
        min_tokens=random.choice((0, 0, 3)),
        seed=random.randrange(4),
        pooling=None if max_tokens else random.choice((None, Pooling.LAST, Pooling.MEAN)),
    )


def random_victim(world: World, random: Random) -> RequestId:
    """Now and then an unknown request; else one of a situation drawn evenly, so that rare ones are met as often."""
    by_situation: dict[str, list[RequestId]] = {}
    for sequence in live_sequences(world.scheduler):
        by_situation.setdefault(situation(sequence), []).append(sequence.request.request_id)
    if not by_situation or random.random() < 0.05:
        return RequestId(10**9)
    return random.choice(by_situation[random.choice(list(by_situation))])


def operate(world: World, random: Random, is_calm: bool) -> None:
    """One random call, then the check. In a calm world nothing ends early, so the work done adds up."""
    draw = random.random()
    live = list(world.scheduler.requests)
    if draw < 0.24 and world.scheduler.num_running + world.scheduler.num_waiting < MAX_LIVE:
        world.submit(random_ask(random))
    elif draw < 0.30 and not is_calm:
        world.cancel(random_victim(world, random))
    elif draw < 0.33 and live and not is_calm:
        world.finish(random.choice(live), random.randrange(3))
    elif draw < 0.45 and world.plan is None:
        world.schedule()
    else:
        world.step()
    world.check()


def fuzz(num_operations: int, seed: int) -> Counter[str]:
    """Run, drain and count; an AssertionError names the broken promise and the world it broke in."""
    events: Counter[str] = Counter()
    for index in range(0, num_operations, WORLD_OPERATIONS):
        random = Random(f"{seed}/{index}")
        world, is_calm = World(random_config(random)), random.random() < 0.1
        try:
            for _ in range(min(WORLD_OPERATIONS, num_operations - index)):
                operate(world, random, is_calm)
            world.drain()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, world {index}, {world.config}: {error}") from error
        events += world.events
    return events


def main() -> None:
    parser = argparse.ArgumentParser(description="Fuzz the scheduler, the KV manager and the radix tree.")
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    events = fuzz(options.operations, options.seed)
    duration_s = time.perf_counter() - start
    for name, count in sorted(events.items()):
        print(f"{count:>10,}  {name}")
    print(
        f"{options.operations:,} operations in {duration_s:.0f} s, {1e6 * duration_s / options.operations:.0f} µs each"
    )
    rare = {name: events[name] for name in REQUIRED if events[name] < options.operations // 1_000}
    if rare:
        raise SystemExit(f"too rare to be called tested: {rare}")


if __name__ == "__main__":
    main()
