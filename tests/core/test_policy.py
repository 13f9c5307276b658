"""The scheduler's judgements: expected lengths, the forecast of the pool's peak, victims, and who is served when."""

from random import Random

import hypothesis.strategies as st
import pytest
from core_oracles import next_token
from core_world import Ask, NoReserve, World, WorldConfig
from hypothesis import given

from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.policy import AGEING_STEPS, LENGTH_WINDOW, MIN_SAMPLES, LearnedReserve, choose_victim
from paceline.core.request import Request, RequestId, SequenceId, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.core.sequence import Sequence
from paceline.exec.scripted import ScriptedExecutor


def _sequence(number: int, num_output: int, max_tokens: int, priority: int = 0) -> Sequence:
    request = Ask(max_tokens=max_tokens, priority=priority).request(number, 0.0)
    tokens = token_array([*request.prompt, *[0] * num_output])
    return Sequence(SequenceId(number), request, 0, request.sampling, tokens, num_computed=len(tokens) - 1)


@given(
    finished=st.lists(st.integers(0, 50), max_size=40),
    number=st.integers(1, 1_000),
    num_output=st.integers(0, 60),
    num_remaining=st.integers(1, 400),
)
def test_the_expected_remainder_is_a_finished_length_and_never_more_than_allowed(
    finished: list[int], number: int, num_output: int, num_remaining: int
) -> None:
    reserve = LearnedReserve(16)
    for length in finished:
        reserve.observe(length)
    expected = reserve.remaining(_sequence(number, num_output, num_output + num_remaining))
    assert 0 < expected <= num_remaining
    longer = [length for length in finished if length > num_output]
    if len(longer) >= MIN_SAMPLES:
        assert expected in {min(length - num_output, num_remaining) for length in longer}


def test_expected_lengths_are_spread_like_the_finished_ones() -> None:
    reserve = LearnedReserve(16)
    for length in range(1, 101):
        reserve.observe(length)
    ends = [reserve.remaining(_sequence(number, 0, 1_000)) for number in range(1, 1_001)]
    assert abs(sum(ends) / len(ends) - 50.5) < 1.0
    assert all(abs(sum(end <= mark for end in ends) / 1_000 - mark / 100) < 0.02 for mark in range(1, 101))


def test_lengths_older_than_the_window_are_forgotten() -> None:
    reserve, random = LearnedReserve(16), Random(3)
    lengths = [random.randrange(1, 100) for _ in range(3 * LENGTH_WINDOW)]
    for length in lengths:
        reserve.observe(length)
    assert reserve._sorted == sorted(lengths[-LENGTH_WINDOW:])


def test_prompts_without_output_do_not_push_out_what_was_learned() -> None:
    reserve = LearnedReserve(16)
    for length in range(1, 101):
        reserve.observe(length)
    before = [reserve.remaining(_sequence(number, 0, 1_000)) for number in range(1, 50)]
    for _ in range(2 * LENGTH_WINDOW):
        reserve.observe(0)
    assert [reserve.remaining(_sequence(number, 0, 1_000)) for number in range(1, 50)] == before


@given(
    running=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30), st.integers(0, 60)), max_size=8),
    block_size=st.integers(1, 16),
)
def test_the_forecast_is_the_highest_rise_of_a_simulation(running: list[tuple[int, int, int]], block_size: int) -> None:
    reserve = LearnedReserve(block_size)
    forecast = reserve.forecast()
    ends: list[tuple[float, int]] = []
    for number, (num_output, num_remaining, num_held) in enumerate(running):
        sequence = _sequence(number, num_output, num_output + num_remaining)
        forecast.add(sequence, num_held)
        ends.append((reserve.remaining(sequence), num_held))
    rises = [0.0]
    for half_step in range(62):
        now = half_step / 2
        rises.append(sum(now if end >= now else -held for end, held in ends))
    assert forecast.peak_blocks() == pytest.approx(max(rises) / block_size + len(ends))


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    priorities=st.lists(st.integers(0, 1), min_size=5, max_size=5),
)
def test_the_victim_is_the_least_urgent_and_cheapest_but_never_the_oldest(
    lengths: list[int], priorities: list[int]
) -> None:
    kv = KvManager(64, 2)
    running = []
    for number, length in enumerate(lengths):
        sequence = _sequence(number, length, 20, priorities[number])
        sequence.lease = kv.open(kv.match(b"%d" % number, sequence.tokens, 0)).lease
        kv.grow(sequence.lease, sequence.num_computed)
        running.append(sequence)
    victim = choose_victim(running, kv)
    if len(running) == 1:
        assert victim is None
        return
    assert victim in running[1:]
    assert victim.request.priority == max(sequence.request.priority for sequence in running[1:])


@pytest.mark.parametrize("budget", [1, 2, 5, 64])
@pytest.mark.parametrize("num_rows", [2, 7, 12, 24])
def test_a_running_prefill_never_waits_longer_than_the_ageing_bound(budget: int, num_rows: int) -> None:
    """Bound: AGEING_STEPS, then one step for each other prefill that may be starving as long."""
    random = Random(f"{budget}/{num_rows}")
    limits = SchedulerLimits(num_rows, budget, 4096)
    scheduler = Scheduler(limits, KvManager(4096, 4), NoReserve())
    loop = StepLoop(scheduler, ScriptedExecutor(4, next_token))
    worst = 0
    for number in range(600):
        if scheduler.num_waiting < 2:
            length = random.choice((3, 5, 40, 200))
            prompt = token_array([random.randrange(1_000) for _ in range(length)])
            scheduler.submit(Request(RequestId(number), prompt, StopRule(max_tokens=1), arrival_s=float(number)))
        loop.step()
        gaps = [scheduler.step_index - sequence.last_served_step for sequence in scheduler.running]
        worst = max([worst, *gaps])
    assert worst <= AGEING_STEPS + num_rows - 1


def test_decodes_that_exceed_the_budget_take_turns() -> None:
    world = World(WorldConfig(block_size=4, num_blocks=64, max_num_seqs=6, max_step_tokens=2, forces=False))
    world.submit(Ask(num_shared=1, max_tokens=20, num_sequences=6))
    for _ in range(40):
        world.step()
        world.check()
        counts = [sequence.num_output for sequence in world.scheduler.running if sequence.num_output]
        assert not counts or max(counts) - min(counts) <= 6
    world.drain()
