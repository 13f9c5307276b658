"""Requests with a grammar around the real compiler: they wait beside the running streams, and enter, leave or are
refused. The executor is scripted: what a grammar makes of tokens is tested elsewhere.
"""

import json
import time

import pytest

import paceline.engine.grammars as grammars_module
from paceline.config import EngineConfig
from paceline.core.kv import KvManager
from paceline.core.output import SequenceOutput
from paceline.core.policy import LearnedReserve
from paceline.core.request import (
    FinishReason,
    Grammar,
    GrammarKind,
    Request,
    RequestId,
    SamplingParams,
    StopRule,
    token_array,
)
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.core.spellings import Spellings
from paceline.engine.contract import EngineLimits
from paceline.engine.engine import Engine
from paceline.engine.grammars import MAX_ABANDONED, GrammarQueue
from paceline.errors import ContextLengthError, OverloadedError, RequestError
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.scripted import ScriptedExecutor

SPELLINGS = Spellings((b"<end>", *(bytes([byte]) for byte in range(1, 256))), (0,), (0,))
GOOD = Grammar(GrammarKind.REGEX, "[a-z]+")
BAD = Grammar(GrammarKind.REGEX, "(a", "structured_outputs.regex")


def slow(num_patterns: int, title: str = "") -> Grammar:
    """Takes four times as long with each pattern more (12: about 0.4 s), and is found to be too complex in the end."""
    patterns = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{length}}}"} for length in range(10, 10 + num_patterns)]
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps({"title": title, "allOf": patterns}), "response_format")


def make_engine(knows_spellings: bool = True, max_queued: int = 100) -> Engine:
    limits = EngineLimits(256, 256, 16, 4, 256, "scripted", 1)
    config = EngineConfig(max_num_queued_reqs=max_queued)
    scheduler = Scheduler(SchedulerLimits(4, 64, 256), KvManager(16, 16), LearnedReserve(16))
    executor = ScriptedExecutor(16, lambda tokens, sampling: 65)
    engine = Engine(scheduler, executor, GrammarQueue(GrammarCompiler(256)), limits, config)
    if knows_spellings:
        engine.learn_spellings(SPELLINGS)
    return engine


def ask(number: int, grammar: Grammar | None, max_tokens: int = 3, num_sequences: int = 1) -> Request:
    sampling = SamplingParams(grammar=grammar)
    return Request(RequestId(number), token_array([1, 2, 3]), StopRule(max_tokens), sampling, num_sequences)


def run(engine: Engine, until_s: float = 20.0) -> list[SequenceOutput]:
    """Turn the crank as the engine process does, until nothing is left."""
    outputs, deadline_s = [], time.monotonic() + until_s
    while engine.has_work() or engine.idle_timeout_ms() is not None:
        assert time.monotonic() < deadline_s, "the engine is not through"
        if not engine.has_work():
            time.sleep((engine.idle_timeout_ms() or 0) / 1000)
        outputs += engine.step()
    return outputs


def test_a_request_waits_for_its_grammar_and_then_runs() -> None:
    engine = make_engine()
    engine.submit(ask(1, GOOD, num_sequences=2))
    assert engine.gauges().num_waiting == 2
    assert engine.idle_timeout_ms() is not None
    outputs = run(engine)
    assert [output.finish_reason for output in outputs if output.finish_reason] == [FinishReason.LENGTH] * 2
    assert engine.take_refusals() == []


def test_a_grammar_that_was_compiled_once_does_not_wait_again() -> None:
    engine = make_engine()
    engine.compile_grammar(GOOD)
    engine.submit(ask(1, GOOD))
    assert engine.idle_timeout_ms() is None
    assert len(engine.step()[0].tokens) == 1


def test_nobody_waits_for_the_grammar_of_another() -> None:
    engine = make_engine()
    engine.submit(ask(1, slow(11)))
    engine.submit(ask(2, None, max_tokens=200))
    num_steps = 0
    while not engine.take_refusals():
        assert len(engine.step()) <= 1
        num_steps += 1
    assert num_steps > 100


def test_a_bad_grammar_is_refused_when_it_is_found_and_at_once_from_then_on() -> None:
    engine = make_engine()
    engine.submit(ask(1, BAD))
    assert run(engine) == []
    [(request_id, error)] = engine.take_refusals()
    assert request_id == 1
    assert isinstance(error, RequestError)
    assert error.param == "structured_outputs.regex"
    with pytest.raises(RequestError, match="unclosed group"):
        engine.submit(ask(2, BAD))
    assert engine.gauges().num_waiting == 0


def test_a_request_cancelled_while_its_grammar_is_compiled_ends_once() -> None:
    engine = make_engine()
    engine.submit(ask(1, slow(11), num_sequences=2))
    engine.cancel(RequestId(1))
    outputs = run(engine)
    assert [(o.choice_index, o.finish_reason) for o in outputs] == [(i, FinishReason.CANCELLED) for i in (0, 1)]
    engine.submit(ask(2, GOOD))
    assert {output.request_id for output in run(engine)} == {2}
    assert engine.take_refusals() == []


def test_grammars_wait_until_the_vocabulary_is_known() -> None:
    engine = make_engine(knows_spellings=False)
    engine.submit(ask(1, GOOD))
    for _ in range(5):
        assert engine.step() == []
    engine.learn_spellings(SPELLINGS)
    assert run(engine)[-1].finish_reason is FinishReason.LENGTH


def test_what_never_fits_or_finds_the_queue_full_is_refused_before_it_is_compiled() -> None:
    engine = make_engine(max_queued=1)
    with pytest.raises(ContextLengthError):
        engine.submit(ask(1, GOOD, max_tokens=1000))
    engine.submit(ask(2, GOOD))
    with pytest.raises(OverloadedError, match="1 sequences are waiting"):
        engine.submit(ask(3, GOOD))


def test_a_grammar_that_takes_too_long_is_given_up_and_the_next_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    engine.compile_grammar(Grammar(GrammarKind.REGEX, "warm"))
    run(engine)
    monkeypatch.setattr(grammars_module, "COMPILE_LIMIT_S", 0.05)
    for number in range(MAX_ABANDONED):
        engine.submit(ask(number, slow(13, str(number))))
    engine.submit(ask(10, GOOD))
    assert {output.request_id for output in run(engine)} == {10}
    refusals = engine.take_refusals()
    assert [request_id for request_id, _ in refusals] == list(range(MAX_ABANDONED))
    assert all("not compiled after" in error.message for _, error in refusals)
    with pytest.raises(OverloadedError, match="take too long"):
        engine.submit(ask(20, Grammar(GrammarKind.REGEX, "new")))
    engine.submit(ask(21, GOOD))
    assert run(engine)[-1].finish_reason is FinishReason.LENGTH
