"""Recorded steps, counted: each with what was in it and how long it took; and a step time fitted to them."""

from array import array
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.config import EngineConfig
from paceline.core.kv import KvManager
from paceline.core.policy import LearnedReserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.costs.step import StepWork
from paceline.engine.contract import EngineLimits
from paceline.engine.engine import Engine
from paceline.engine.grammars import GrammarQueue
from paceline.engine.journal import Journal
from paceline.errors import ConfigError
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.scripted import ScriptedExecutor
from paceline.planning.cli import fit_app, fleet_app
from paceline.sim.measured import measured_steps
from paceline.sim.recording import read_recording

BLOCK_SIZE, VOCABULARY = 4, 50


def next_token(tokens: "array[int]", sampling: SamplingParams) -> int:
    return (sampling.seed + len(tokens)) % VOCABULARY


def no_forced(tokens: "array[int]", sampling: SamplingParams) -> int:
    return 0


def record(path: Path, num_requests: int, num_output: int, num_tokens: int) -> None:
    """The real engine and scheduler; only the model is a script. Requests come three steps apart."""
    scheduler = Scheduler(SchedulerLimits(4, num_tokens, 4096), KvManager(200, BLOCK_SIZE), LearnedReserve(BLOCK_SIZE))
    limits = EngineLimits(
        scheduler.effective_context, scheduler.kv.pool_tokens, BLOCK_SIZE, 4, VOCABULARY, "scripted", 1
    )
    executor = ScriptedExecutor(BLOCK_SIZE, next_token, no_forced)
    engine = Engine(
        scheduler, executor, GrammarQueue(GrammarCompiler(VOCABULARY)), limits, EngineConfig(), Journal(path)
    )
    for number in range(num_requests):
        prompt = token_array([number % VOCABULARY, *range(9)])
        engine.submit(
            Request(RequestId(number), prompt, StopRule(num_output), SamplingParams(seed=number), arrival_s=0.0)
        )
        for _ in range(3):
            engine.step()
    while engine.has_work():
        engine.step()


def test_a_recorded_step_has_the_contents_of_its_plan(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    record(path, num_requests=1, num_output=3, num_tokens=6)
    steps = measured_steps(read_recording(path))
    assert [work for work, _ in steps] == [
        StepWork(6, 0, 1, 6, 1 + 2 + 3 + 4 + 5 + 6, 0),
        StepWork(4, 0, 1, 10, 7 + 8 + 9 + 10, 1),
        StepWork(0, 1, 0, 11, 11, 1),
        StepWork(0, 1, 0, 12, 12, 1),
    ]
    assert all(seconds > 0.0 for _, seconds in steps)


def test_parts_of_a_recording_are_counted_one_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    record(path, num_requests=1, num_output=3, num_tokens=6)
    record(path, num_requests=1, num_output=2, num_tokens=16)
    works = [work for work, _ in measured_steps(read_recording(path))]
    assert works[4:] == [StepWork(10, 0, 1, 10, 55, 1), StepWork(0, 1, 0, 11, 11, 1)]


def test_a_fit_of_a_recording_serves_the_planner(tmp_path: Path) -> None:
    path, costs = tmp_path / "recording.jsonl", tmp_path / "costs.json"
    record(path, num_requests=12, num_output=8, num_tokens=16)
    fitted = CliRunner().invoke(fit_app, [str(path), "--out", str(costs)], catch_exceptions=False)
    assert "error on steps it was not fitted to: median" in fitted.stdout
    planned = CliRunner().invoke(
        fleet_app, ["smollm2-135m", "--hardware", "L4", "--fitted", str(costs)], catch_exceptions=False
    )
    assert planned.exit_code == 0
    assert "by the fitted step time" in planned.stdout


def test_a_recording_that_is_too_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    record(path, num_requests=1, num_output=3, num_tokens=6)
    with pytest.raises(ConfigError, match="a fit needs at least 20 measured steps, got 4"):
        CliRunner().invoke(fit_app, [str(path)], catch_exceptions=False)
