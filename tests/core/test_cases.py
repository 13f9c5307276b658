"""Cases from the field, reduced to the core. Each docstring names its case."""

import os
import subprocess
import sys
from dataclasses import replace
from random import Random

import pytest
from core_oracles import check_scheduler, live_sequences, next_token, plain_run
from core_world import Ask, NoReserve, World, WorldConfig, drain_bound
from fuzz import fuzz, random_ask, random_config

import paceline.core.radix as radix
from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.policy import LearnedReserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.errors import ContextLengthError
from paceline.exec.scripted import ScriptedExecutor

BLOCK_SIZE = 16


def _core(num_blocks: int, budget: int, max_context: int = 1 << 16, rows: int = 16) -> StepLoop:
    kv = KvManager(num_blocks, BLOCK_SIZE)
    limits = SchedulerLimits(max_num_seqs=rows, max_step_tokens=budget, max_context=max_context)
    return StepLoop(Scheduler(limits, kv, LearnedReserve(BLOCK_SIZE)), ScriptedExecutor(BLOCK_SIZE, next_token))


def _request(number: int, num_prompt: int, max_tokens: int, arrival_s: float = 0.0) -> Request:
    """A prompt that shares nothing with another number's."""
    prompt = token_array([100 * number + index % 97 for index in range(num_prompt)])
    return Request(RequestId(number), prompt, StopRule(max_tokens), SamplingParams(seed=number), arrival_s=arrival_s)


def test_b023_a_request_larger_than_the_pool_is_refused_and_the_next_is_served() -> None:
    """B023: 49 blocks of 16, context 4096; five prompts of 1002 tokens, then one of 20."""
    loop = _core(num_blocks=49, budget=512, max_context=4_096)
    for number in range(5):
        with pytest.raises(ContextLengthError, match=r"1002.* 784 ") as refused:
            loop.scheduler.submit(_request(number, 1_002, 16))
        assert refused.value.status == 400
        assert refused.value.param == "prompt"
    assert not loop.scheduler.has_work()
    small = _request(9, 20, 16)
    loop.scheduler.submit(small)
    outputs = [output for _ in range(16) for output in loop.step()]
    assert [token.token_id for output in outputs for token in output.tokens] == [
        token_id for token_id, _ in plain_run(small, 0).tokens
    ]
    assert not loop.scheduler.has_work()


@pytest.mark.parametrize("seed", range(60))
def test_b023_no_admitted_request_is_unfinished_after_total_tokens_plus_queue_length_steps(seed: int) -> None:
    """B023, the property: World.drain counts the steps and checks every promise on the way."""
    random = Random(f"progress {seed}")
    world = World(random_config(random))
    for _ in range(random.randint(1, 10)):
        world.submit(random_ask(random))
    bound = drain_bound(live_sequences(world.scheduler))
    assert world.drain() <= bound


@pytest.mark.parametrize(("a_output", "b_output"), [(1, 1), (16, 16), (24, 12)])
def test_b025_two_half_cached_requests_do_not_block_each_other(a_output: int, b_output: int) -> None:
    """B025: 20 blocks of 16; A needs 14 blocks in all and B 12; the first 6 of each are cached; 64 tokens a step."""
    loop = _core(num_blocks=20, budget=64)
    a, b = _request(1, 14 * 16 - a_output, a_output), _request(2, 12 * 16 - b_output, b_output)
    for number, request in ((11, a), (12, b)):
        loop.scheduler.submit(Request(RequestId(number), request.prompt[:96], StopRule(max_tokens=0)))
        while loop.scheduler.has_work():
            loop.step()
    loop.scheduler.submit(a)
    loop.scheduler.submit(b)
    outputs = []
    for _ in range(40):
        outputs += loop.step()
        loop.scheduler.kv.check([sequence.lease for sequence in loop.scheduler.running if sequence.lease is not None])
    assert not loop.scheduler.has_work(), "the two are not through after 40 steps"
    assert {output.num_cached_tokens for output in outputs if output.request_id == a.request_id} == {96}
    for request in (a, b):
        tokens = [t.token_id for output in outputs if output.request_id == request.request_id for t in output.tokens]
        assert tokens == [token_id for token_id, _ in plain_run(request, 0).tokens]


@pytest.mark.parametrize("has_reserve", [True, False])
def test_b025_no_step_has_waiting_work_free_room_and_no_progress(has_reserve: bool) -> None:
    """B025, the random version: 10^5 steps in all. Every step computes a token; an empty pool always admits; and who
    is first in line and fits (with room for everything that runs) is let in unless the step preempted.
    """
    random, num_steps = Random(f"b025 {has_reserve}"), 0
    while num_steps < 50_000:
        block_size, num_blocks = random.choice((1, 2, 4)), random.randint(6, 20)
        kv = KvManager(num_blocks, block_size)
        limits = SchedulerLimits(random.randint(2, 6), random.choice((4, 8, 64)), 1 << 16)
        scheduler = Scheduler(limits, kv, LearnedReserve(block_size) if has_reserve else NoReserve())
        loop = StepLoop(scheduler, ScriptedExecutor(block_size, next_token))
        for number in range(2_000):
            if scheduler.num_waiting < 4:
                ask = Ask(random.randrange(3), random.randint(0, 8), (random.randrange(3),), random.choice((1, 4, 12)))
                if len(ask.request(0, 0.0).prompt) + ask.max_tokens <= kv.pool_tokens:
                    scheduler.submit(ask.request(number, float(number)))
            if not scheduler.has_work():
                continue
            before, preempted = set(scheduler.running), scheduler.num_preemptions
            plan = scheduler.schedule()
            assert plan is not None
            assert plan.num_tokens >= 1, "a step makes no progress"
            if (
                not plan.new_rows
                and scheduler.num_preemptions == preempted
                and plan.num_tokens < limits.max_step_tokens
            ):
                _check_the_first_in_line_does_not_fit(scheduler, has_reserve)
            assert before or plan.new_rows, "an empty pool admits nobody"
            scheduler.update(plan, loop._executor.execute(plan))
            num_steps += 1


def _check_the_first_in_line_does_not_fit(scheduler: Scheduler, has_reserve: bool) -> None:
    first = scheduler._waiting.peek()
    if first is None or not scheduler._free_rows or has_reserve:
        return
    kv = scheduler.kv
    promised = sum(
        kv.blocks_for(len(sequence.tokens)) - len(sequence.lease.blocks)
        for sequence in scheduler.running
        if sequence.lease is not None
    )
    need = kv.cost(kv.match(first.request.namespace, first.tokens, first.match_limit), len(first.tokens))
    assert need + promised > kv.pool.num_available, "the first in line fits and is kept out"


@pytest.mark.parametrize("finished", [None, 2])
def test_b021_cancelling_ends_every_choice(finished: int | None) -> None:
    """B021: n 4, max_tokens 4000; cancelled after 5 tokens each, and again with one choice already finished."""
    loop = _core(num_blocks=300, budget=64)
    scheduler, pool = loop.scheduler, loop.scheduler.kv.pool
    request = replace(_request(1, 40, 4_000), num_sequences=4)
    scheduler.submit(request)
    while scheduler.num_running < 4 or min(sequence.num_output for sequence in scheduler.running) < 5:
        loop.step()
    if finished is not None:
        scheduler.finish(request.request_id, finished)
    assert pool.num_in_use > 0
    plan = scheduler.schedule()
    endings = scheduler.cancel(request.request_id)
    assert {ending.choice_index for ending in endings} == set(range(4)) - {finished}
    assert all(ending.finish_reason == "cancelled" for ending in endings)
    assert plan is not None
    assert scheduler.update(plan, loop._executor.execute(plan)) == [], "a cancelled choice speaks"
    assert scheduler.schedule() is None, "a step is planned for a cancelled request"
    check_scheduler(scheduler)
    assert (scheduler.num_running, scheduler.num_waiting, dict(scheduler.requests)) == (0, 0, {})
    assert pool.num_in_use == 0
    shared = scheduler.kv.match(b"", request.prompt, 40)
    assert [pool.holders(node.block) for node in shared.path] == [0, 0], "the prompt's blocks are not evictable"
    assert len(shared.path) * BLOCK_SIZE + shared.num_copied == 40
    assert len({node.block for node in scheduler.kv._tree.nodes()}) == pool.num_cached


@pytest.mark.parametrize("budget", [8, 16, 17, 32, 33, 4_096])
def test_b031_prompt_scores_do_not_depend_on_the_cache_or_the_chunks(budget: int) -> None:
    """B031, core part: 33 tokens scored three times, then another request sharing 20 (the world compares them all)."""
    world = World(WorldConfig(BLOCK_SIZE, num_blocks=32, max_num_seqs=4, max_step_tokens=budget))
    scored = Ask(num_shared=33, max_tokens=1, is_scored=True)
    for _ in range(3):
        request_id = world.submit(scored)
        world.drain()
        assert request_id is not None
        assert len(world.scores[request_id, 0]) == 32
    plain = world.submit(Ask(num_shared=33, max_tokens=1))
    other = world.submit(Ask(num_shared=20, tail=(2, 2, 2), max_tokens=1, is_scored=True))
    world.drain()
    assert plain is not None
    assert other is not None
    assert len(world.scores[other, 0]) == 22
    assert world.events["prefix hit"] == 1, "only the request without scores may use the cache"


class CollidingBytes(bytes):
    """Equal only by content, but all in one bucket."""

    def __hash__(self) -> int:
        return 0


def test_b033_with_a_constant_hash_content_still_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """B033: two different 64-token prompts under a constant hash; then a fuzz under the same hash."""
    monkeypatch.setattr(radix, "block_key", CollidingBytes)
    world = World(WorldConfig(BLOCK_SIZE, num_blocks=64, max_num_seqs=4, max_step_tokens=512))
    for stem in (0, 1):
        world.submit(Ask(stem=stem, num_shared=64, max_tokens=4))
        world.drain()
    assert world.events["partial copy"] == 1, "the stems share three tokens of one block, and those are copied"
    assert fuzz(4_000, seed=3)["prefix hit"] > 100


def test_b033_bucket_hashes_are_not_predictable_across_processes() -> None:
    """B033: two processes, one prompt, different hashes."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    code = "from paceline.core.radix import block_key; print(hash(block_key(bytes(64))))"
    command = [sys.executable, "-c", code]
    hashes = {subprocess.run(command, env=environment, capture_output=True, check=True).stdout for _ in range(2)}
    assert len(hashes) == 2


@pytest.mark.parametrize("max_tokens", [1, 60])
def test_b035_a_long_prompt_does_not_hold_up_short_ones(max_tokens: int) -> None:
    """B035: 512 tokens a step; 20,000 tokens at step 0, 100 at step 3, 5 at step 4."""
    loop = _core(num_blocks=2_048, budget=512)
    arrivals = {0: _request(1, 20_000, max_tokens), 3: _request(2, 100, max_tokens), 4: _request(3, 5, max_tokens)}
    first_step: dict[int, int] = {}
    for step in range(60):
        if step in arrivals:
            loop.scheduler.submit(arrivals[step])
        for output in loop.step():
            first_step.setdefault(output.request_id, step + 1)
    assert first_step[2] - 3 <= 3
    assert first_step[3] - 4 <= 3
    assert first_step[1] <= 42


@pytest.mark.parametrize(("num_prompt", "budgets"), [(1_000, (64, 65, 4_096)), (65, (1, 64, 65, 4_096))])
def test_b037_a_prompt_longer_than_the_budget_gives_the_same_tokens(num_prompt: int, budgets: tuple[int, ...]) -> None:
    """B037, core part: context 4096, prompts of 1,000 and 65 tokens."""
    request = _request(1, num_prompt, 40)
    expected = plain_run(request, 0).tokens
    for budget in budgets:
        loop = _core(num_blocks=256, budget=budget, max_context=4_096)
        loop.scheduler.submit(request)
        outputs = [output for _ in range(num_prompt + 40) for output in loop.step()]
        assert tuple((token.token_id, token.logprob) for output in outputs for token in output.tokens) == expected
        assert outputs[-1].finish_reason == "length"
        assert not loop.scheduler.has_work()


@pytest.mark.parametrize("num_forced", [1, 3])
def test_a_row_that_owes_several_tokens_it_brought_itself_decodes_before_any_prompt(num_forced: int) -> None:
    """Prompts that take all of every step's budget for long, and grow old; the row brings tokens in each step."""
    kv, limits = KvManager(4_096, BLOCK_SIZE), SchedulerLimits(16, 16, 1 << 16)
    executor = ScriptedExecutor(BLOCK_SIZE, next_token, lambda _, sampling: num_forced if sampling.seed == 1 else 0)
    loop = StepLoop(Scheduler(limits, kv, LearnedReserve(BLOCK_SIZE)), executor)
    loop.scheduler.submit(_request(1, 10, 400))
    while not loop.step():
        pass
    for number in range(2, 12):
        loop.scheduler.submit(_request(number, 600, 4))
    for _ in range(90):
        [tokens] = [output.tokens for output in loop.step() if output.request_id == RequestId(1)]
        assert len(tokens) == 1 + num_forced


def test_rows_that_owe_more_than_a_step_holds_take_turns() -> None:
    kv, limits = KvManager(4_096, BLOCK_SIZE), SchedulerLimits(16, 8, 1 << 16)
    executor = ScriptedExecutor(BLOCK_SIZE, next_token, lambda _, sampling: 3)
    loop = StepLoop(Scheduler(limits, kv, LearnedReserve(BLOCK_SIZE)), executor)
    for number in range(5):
        loop.scheduler.submit(_request(number, 1, 400))
    served = [{output.request_id for output in loop.step()} for _ in range(60)]
    for start in range(6, 55):
        assert len(set().union(*served[start : start + 3])) == 5, "somebody waits for more than three steps"
