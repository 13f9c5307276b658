"""Whether an engine makes progress, and how fast its queue drains: judged on clocks that tests turn."""

from dataclasses import replace

from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.engine.contract import EngineGauges
from paceline.engine.drain_rate import DrainRate
from paceline.engine.progress import ProgressWatch
from scripted_engine import ScriptedEngine

TIMEOUT_S = 60.0


def gauges(step_index: int, is_busy: bool = True) -> EngineGauges:
    """What an engine says that has made `step_index` steps and runs one sequence, or none."""
    engine = ScriptedEngine([1], num_steps=step_index)
    if is_busy:
        engine.submit(Request(RequestId(1), token_array([5]), StopRule(1), SamplingParams()))
    return engine.gauges()


def test_steps_are_progress() -> None:
    watch = ProgressWatch(TIMEOUT_S, 0.0)
    for now_s in range(0, 600, 30):
        watch.saw_gauges(gauges(now_s), now_s)
        assert not watch.stalled_s(now_s + 59)


def test_the_same_step_for_longer_than_the_timeout_is_none() -> None:
    watch = ProgressWatch(TIMEOUT_S, 0.0)
    watch.saw_gauges(gauges(7), 10.0)
    for now_s in (20.0, 40.0, 69.0, 70.0):
        watch.saw_gauges(gauges(7), now_s)
        assert not watch.stalled_s(now_s)
    assert watch.stalled_s(70.5) == 60.5
    watch.saw_gauges(gauges(8), 71.0)
    assert not watch.stalled_s(72.0)


def test_silence_is_no_progress() -> None:
    watch = ProgressWatch(TIMEOUT_S, 5.0)
    assert not watch.stalled_s(65.0)
    assert watch.stalled_s(66.0) == 61.0


def test_a_grammar_that_is_being_compiled_makes_no_steps_and_is_no_stall() -> None:
    watch = ProgressWatch(TIMEOUT_S, 0.0)
    for now_s in (30.0, 80.0, 130.0):
        watch.saw_gauges(replace(gauges(7, is_busy=False), num_waiting=2, num_compiling=2), now_s)
        assert not watch.stalled_s(now_s + 50)
    watch.saw_gauges(replace(gauges(7), num_waiting=2, num_compiling=2), 180.0)
    assert watch.stalled_s(240.0) == 110.0


def test_an_engine_without_work_may_be_silent() -> None:
    watch = ProgressWatch(TIMEOUT_S, 0.0)
    watch.saw_idle(1000.0)
    assert not watch.stalled_s(1060.0)
    watch.saw_gauges(gauges(0, is_busy=False), 1100.0)
    watch.saw_gauges(gauges(0, is_busy=False), 1200.0)
    assert not watch.stalled_s(1260.0)


def test_no_timeout_waits_for_ever() -> None:
    assert not ProgressWatch(0.0, 0.0).stalled_s(1e9)


def test_a_refused_client_waits_as_long_as_the_queue_takes() -> None:
    rate = DrainRate()
    for now_s in range(20):
        rate.sample(now_s, num_done=5 * now_s)
    assert rate.wait_s(20.0, num_done=100, num_waiting=50) == 10.0
    assert rate.wait_s(20.0, num_done=100, num_waiting=2) == 1.0
    assert rate.wait_s(20.0, num_done=100, num_waiting=10**6) == 60.0


def test_only_the_last_half_minute_counts() -> None:
    rate = DrainRate()
    for now_s in range(1000):
        rate.sample(now_s, num_done=100 * min(now_s, 900) + max(0, now_s - 900))
    assert rate.wait_s(1000.0, num_done=90_100, num_waiting=10) == 10.0


def test_the_first_seconds_tell_nothing() -> None:
    rate = DrainRate()
    assert rate.wait_s(0.0, 0, 1000) == 1.0
    rate.sample(0.0, 0)
    assert rate.wait_s(4.0, 0, 1000) == 1.0
    assert rate.wait_s(20.0, 0, 1000) == 60.0
