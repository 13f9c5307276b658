"""What a step costs in the scheduler alone: µs a row for schedule + update, and what a long queue adds.

    PYTHONPATH=src python benchmarks/scheduler.py [--profile]

Every row decodes. The executor is a prepared answer, so that nothing but the core is timed, in CPU time, since the
machine may be shared.
"""

import argparse
import cProfile
import pstats
import time
from statistics import median

from paceline.core.kv import KvManager
from paceline.core.plan import RowResult, StepPlan, StepResult, TokenLogprobs
from paceline.core.policy import LearnedReserve
from paceline.core.request import Request, RequestId, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits

BLOCK_SIZE = 16
NUM_PROMPT = 64
MAX_TOKENS = 1_024
NUM_STEPS = 100
ROUNDS = 9
NUM_WAITING = 10_000


def make_decoding(num_rows: int, num_waiting: int, has_free_row: bool = False) -> Scheduler:
    """A scheduler with `num_rows` rows in decode and `num_waiting` requests in line: behind full rows, or, with a row
    free, behind a pool that has room for the steps to come but not for one more.
    """
    blocks_per_row = (NUM_PROMPT + MAX_TOKENS) // BLOCK_SIZE + 1
    kv = KvManager((num_rows + 1) * blocks_per_row, BLOCK_SIZE)
    limits = SchedulerLimits(num_rows + has_free_row, num_rows * NUM_PROMPT, 65_536)
    scheduler = Scheduler(limits, kv, LearnedReserve(BLOCK_SIZE))
    for number in range(num_rows):
        scheduler.submit(make_request(number))
    for _ in range(2):
        plan = scheduler.schedule()
        assert plan is not None
        scheduler.update(plan, answer(plan))
    if has_free_row:
        others = kv.open(kv.match(b"others", token_array([0]), 0)).lease
        num_left = num_rows * (NUM_STEPS // BLOCK_SIZE + 2)
        kv.grow(others, (kv.pool.num_available - num_left) * BLOCK_SIZE)
    for number in range(num_rows, num_rows + num_waiting):
        scheduler.submit(make_request(number))
    return scheduler


def make_request(number: int) -> Request:
    """A prompt of NUM_PROMPT tokens that shares nothing with another's."""
    prompt = token_array([number, *range(NUM_PROMPT - 1)])
    return Request(RequestId(number), prompt, StopRule(MAX_TOKENS), arrival_s=float(number))


def answer(plan: StepPlan) -> StepResult:
    """One token for every row that samples."""
    token = (TokenLogprobs(7, -1.0),)
    return StepResult(tuple(RowResult(row.row, token if row.samples else ()) for row in plan.rows))


def time_steps(scheduler: Scheduler, num_steps: int) -> list[float]:
    """CPU seconds spent in schedule and update, step by step."""
    durations_s = []
    for _ in range(num_steps):
        start = time.process_time()
        plan = scheduler.schedule()
        middle = time.process_time()
        assert plan is not None
        result = answer(plan)
        resumed = time.process_time()
        scheduler.update(plan, result)
        durations_s.append(middle - start + time.process_time() - resumed)
    return durations_s


def microseconds_per_row(num_rows: int, num_waiting: int = 0, has_free_row: bool = False) -> float:
    """µs of CPU for schedule + update, divided by the rows: the median of NUM_STEPS steps."""
    scheduler = make_decoding(num_rows, num_waiting, has_free_row)
    duration_s = median(time_steps(scheduler, NUM_STEPS))
    assert (scheduler.num_running, scheduler.num_waiting) == (num_rows, num_waiting), "the step's content changed"
    return 1e6 * duration_s / num_rows


def measure(num_rows: int) -> list[float]:
    """Nobody waits; NUM_WAITING wait for a row; they wait for blocks. In turns, the best of ROUNDS each."""
    rounds = [
        (
            microseconds_per_row(num_rows),
            microseconds_per_row(num_rows, NUM_WAITING),
            microseconds_per_row(num_rows, NUM_WAITING, has_free_row=True),
        )
        for _ in range(ROUNDS)
    ]
    return [min(column) for column in zip(*rounds, strict=True)]


def main() -> None:
    """Print the table, or a profile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", action="store_true", help="show where the time goes, 256 rows")
    if parser.parse_args().profile:
        scheduler = make_decoding(256, 0)
        profile = cProfile.Profile()
        profile.runcall(time_steps, scheduler, NUM_STEPS)
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)
        return
    print(f"µs a row: nobody waits; {NUM_WAITING:,} wait behind full rows; as many wait behind a full pool")
    for num_rows in (1, 8, 64, 256):
        alone, behind_rows, behind_pool = measure(num_rows)
        print(
            f"{num_rows:>4} rows  {alone:5.2f}  {behind_rows:5.2f} ({behind_rows / alone:4.2f} x)"
            f"  {behind_pool:5.2f} ({behind_pool / alone:4.2f} x)"
        )


if __name__ == "__main__":
    main()
