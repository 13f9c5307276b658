"""A pooled request gives the same bits whatever the chunks, threads, neighbours, cached prefixes and preemptions."""

import random
from dataclasses import dataclass, replace
from functools import cache

import pytest

from exactness.mixes import BLOCK_SIZE, BUDGETS, MAX_CONTEXT, PLAIN_BLOCKS, Machine, NoReserve, load
from paceline.core.policy import LearnedReserve, Reserve
from paceline.core.request import Pooling, Request, RequestId, StopRule, token_array
from paceline.ops.cpu import instruction_sets

FASTEST = instruction_sets()[0]
GENERATES = StopRule(max_tokens=24)
POOLS = StopRule(max_tokens=0)


@cache
def machine(isa: str, num_threads: int) -> Machine:
    return load(isa, num_threads)


@dataclass(frozen=True)
class Outcome:
    """What a run gave, and how many computed tokens each request lost to a preemption."""

    pooled: dict[RequestId, bytes]
    num_lost: dict[RequestId, int]


def run(where: Machine, requests: list[Request], num_blocks: int, budget: int, reserve: Reserve) -> Outcome:
    loop, _ = where.loop(num_blocks, budget, reserve)
    sequences = []
    for request in requests:
        loop.scheduler.submit(request)
        sequences += loop.scheduler.requests[request.request_id]
    pooled = {}
    while loop.scheduler.has_work():
        for output in loop.step():
            if output.pooled is not None:
                assert output.finish_reason is not None
                pooled[output.request_id] = output.pooled
    return Outcome(pooled, {sequence.request.request_id: sequence.num_lost for sequence in sequences})


@cache
def plain(pooling: Pooling, prompt: tuple[int, ...]) -> bytes:
    """Alone, on one thread, in one chunk, with an empty cache."""
    request = Request(RequestId(0), token_array(prompt), POOLS, pooling=pooling)
    where = machine(FASTEST, 1)
    return run(where, [request], PLAIN_BLOCKS, MAX_CONTEXT, LearnedReserve(BLOCK_SIZE)).pooled[RequestId(0)]


def draw_requests(rng: random.Random, vocab_size: int) -> list[Request]:
    """Six to ten requests, half of them pooled, most with a piece of one common prefix."""
    prefix = [rng.randrange(vocab_size) for _ in range(300)]
    requests = []
    for index in range(rng.randrange(6, 11)):
        shared = prefix[: rng.randrange(len(prefix))] if rng.random() < 0.8 else []
        prompt = token_array(shared + [rng.randrange(vocab_size) for _ in range(rng.randrange(1, 90))])
        request = Request(RequestId(index), prompt, GENERATES, arrival_s=float(index))
        pooling = (None, Pooling.LAST, Pooling.MEAN)[index % 3]
        requests.append(request if pooling is None else replace(request, stop=POOLS, pooling=pooling))
    return requests


@pytest.mark.parametrize("num_threads", [1, 2])
def test_mixes_give_the_bits_of_plain_runs(num_threads: int) -> None:
    where = machine(FASTEST, num_threads)
    for seed in range(6):
        rng = random.Random(seed)
        requests = draw_requests(rng, where.spec.vocab_size)
        need = max(-(-(len(request.prompt) + request.stop.max_tokens) // BLOCK_SIZE) for request in requests)
        outcome = run(where, requests, need + rng.randrange(4), rng.choice(BUDGETS), NoReserve())
        for request in requests:
            if request.pooling is not None:
                expected = plain(request.pooling, tuple(request.prompt))
                assert outcome.pooled[request.request_id] == expected, (seed, request.request_id, request.pooling)


@pytest.mark.parametrize(("budget", "num_blocks"), [(5, 24), (6, 23), (8, 24), (12, 22)])
def test_a_preempted_mean_gives_the_bits_of_its_plain_run(budget: int, num_blocks: int) -> None:
    """Two streams outgrow the pool while the mean, of lower priority, is half computed: its sum starts anew."""
    where = machine(FASTEST, 2)
    vocabulary = range(where.spec.vocab_size)
    prompts = [tuple(random.Random(seed).sample(vocabulary, length)) for seed, length in enumerate((100, 100, 120))]
    requests = [Request(RequestId(index), token_array(prompts[index]), StopRule(60)) for index in range(2)]
    mean = Request(RequestId(2), token_array(prompts[2]), POOLS, arrival_s=1.0, priority=1, pooling=Pooling.MEAN)
    outcome = run(where, [*requests, mean], num_blocks, budget, NoReserve())
    assert 0 < outcome.num_lost[mean.request_id] < 120
    assert outcome.pooled[mean.request_id] == plain(Pooling.MEAN, prompts[2])


@pytest.mark.parametrize("pooling", list(Pooling))
@pytest.mark.parametrize("budget", [1, 7, 16, 33, 64])
def test_any_chunk_size_gives_the_same_bits(pooling: Pooling, budget: int) -> None:
    prompt = tuple(1000 + 37 * index % 900 for index in range(150))
    where = machine(FASTEST, 2)
    request = Request(RequestId(0), token_array(prompt), POOLS, pooling=pooling)
    outcome = run(where, [request], PLAIN_BLOCKS, budget, LearnedReserve(BLOCK_SIZE))
    assert outcome.pooled[RequestId(0)] == plain(pooling, prompt)
