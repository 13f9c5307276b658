"""What the engine counts: B063, and times of admission on the wall clock."""

import time
from array import array
from random import Random

from paceline.config import EngineConfig
from paceline.core.kv import KvManager
from paceline.core.output import SequenceOutput
from paceline.core.policy import LearnedReserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.engine.contract import EngineCounters, EngineLimits
from paceline.engine.engine import Engine
from paceline.engine.grammars import GrammarQueue
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.scripted import ScriptedExecutor

BLOCK_SIZE = 16
VOCABULARY = 1000


def next_token(tokens: "array[int]", sampling: SamplingParams) -> int:
    return (sampling.seed * 7919 + len(tokens) * 104_729) % VOCABULARY


def scripted_engine(num_blocks: int, num_rows: int = 16) -> Engine:
    """The real engine and scheduler; only the model is a script."""
    kv = KvManager(num_blocks, BLOCK_SIZE)
    scheduler = Scheduler(SchedulerLimits(num_rows, 256, 4096), kv, LearnedReserve(BLOCK_SIZE))
    limits = EngineLimits(scheduler.effective_context, kv.pool_tokens, BLOCK_SIZE, num_rows, VOCABULARY, "scripted", 1)
    grammars = GrammarQueue(GrammarCompiler(VOCABULARY))
    return Engine(scheduler, ScriptedExecutor(BLOCK_SIZE, next_token), grammars, limits, EngineConfig())


def request(number: int, prompt: list[int], max_tokens: int, num_sequences: int = 1) -> Request:
    sampling = SamplingParams(seed=number)
    return Request(RequestId(number), token_array(prompt), StopRule(max_tokens), sampling, num_sequences)


def run(engine: Engine) -> list[SequenceOutput]:
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    return outputs


def test_b063_recomputed_tokens_are_neither_hits_nor_queries() -> None:
    """B063: 50 random prompts of 200 tokens, no two with the same first token, 200 output; room for five of them."""
    engine, random = scripted_engine(num_blocks=125), Random(63)
    for number in range(50):
        prompt = [number, *(random.randrange(VOCABULARY) for _ in range(199))]
        engine.submit(request(number, prompt, max_tokens=200))
    outputs = run(engine)
    counters = engine.gauges().counters
    assert counters.num_preemptions > 0
    assert counters.num_recomputed_tokens > 0
    assert (counters.num_cached_tokens, {output.num_cached_tokens for output in outputs}) == (0, {0})
    assert counters.num_prompt_tokens == counters.num_queried_tokens == 50 * 200
    assert counters.num_generated_tokens == sum(len(output.tokens) for output in outputs) == 50 * 200
    # The last token of a sequence is sampled and never computed.
    computed = counters.num_prompt_tokens + counters.num_generated_tokens - 50 + counters.num_recomputed_tokens
    assert counters.step_tokens.total == computed
    assert sum(counters.step_tokens.counts) == counters.num_steps


def test_choices_of_one_prompt_hit_what_the_first_computed() -> None:
    engine = scripted_engine(num_blocks=200)
    engine.submit(request(1, list(range(640)), max_tokens=4, num_sequences=3))
    engine.step()
    waiting = engine.gauges()
    run(engine)
    counters = engine.gauges().counters
    assert (waiting.num_running, waiting.num_waiting, waiting.num_following) == (1, 2, 2)
    assert counters.num_prompt_tokens == counters.num_queried_tokens == 3 * 640
    assert counters.num_cached_tokens == 2 * 639


def test_a_prompt_whose_scores_are_asked_for_is_not_looked_up() -> None:
    engine = scripted_engine(num_blocks=100)
    scored = Request(RequestId(1), token_array(range(20)), StopRule(0), SamplingParams(num_prompt_logprobs=0))
    engine.submit(scored)
    run(engine)
    counters = engine.gauges().counters
    assert (counters.num_prompt_tokens, counters.num_queried_tokens) == (20, 0)


def test_an_output_tells_when_its_sequence_was_admitted() -> None:
    engine = scripted_engine(num_blocks=100, num_rows=1)
    for number in (1, 2):
        engine.submit(request(number, [number, 5, 6], max_tokens=3))
    before_s = time.monotonic()
    admitted_s: dict[int, set[float | None]] = {1: set(), 2: set()}
    first_ended_s = 0.0
    while engine.has_work():
        for output in engine.step():
            admitted_s[output.request_id].add(output.admitted_s)
            if output.request_id == 1 and output.finish_reason is not None:
                first_ended_s = time.monotonic()
    (first_s,), (second_s,) = admitted_s[1], admitted_s[2]
    assert first_s is not None
    assert second_s is not None
    assert before_s <= first_s < first_ended_s <= second_s <= time.monotonic()


def test_counters_of_two_engines_add_up() -> None:
    counters = []
    for number in (1, 2):
        engine = scripted_engine(num_blocks=100)
        engine.submit(request(number, [number, 5, 6], max_tokens=3 * number))
        run(engine)
        counters.append(engine.gauges().counters)
    both = counters[0].plus(counters[1])
    assert (both.num_generated_tokens, both.num_prompt_tokens, both.num_steps) == (9, 6, 9)
    assert both.step_tokens.total == 2 * 3 + 2 + 5
    assert both.plus(EngineCounters()) == both
