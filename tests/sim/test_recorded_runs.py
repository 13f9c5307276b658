"""Recorded inputs: a fresh scheduler decides the same, a changed one does not, and the latencies are the live ones."""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from array import array
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

import paceline
from paceline.bench.measures import spread
from paceline.config import EngineConfig
from paceline.core import policy
from paceline.core.kv import KvManager
from paceline.core.policy import LearnedReserve
from paceline.core.request import FinishReason, Request, RequestId, SamplingParams, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.costs.fitted import FittedStepTime
from paceline.costs.step import LinearLaw
from paceline.engine.contract import EngineLimits
from paceline.engine.engine import Engine
from paceline.engine.grammars import GrammarQueue
from paceline.engine.journal import Journal
from paceline.engine.loading import load_engine
from paceline.engine.messages import Finish
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.scripted import ScriptedExecutor
from paceline.sim.costs_option import parse_costs
from paceline.sim.policies import Policy
from paceline.sim.recorded import read_requests
from paceline.sim.recording import RecordingError, read_recording
from paceline.sim.replay import PlanDiffersError, replay_all
from paceline.sim.replay_command import write_fit
from paceline.sim.scenario import Scenario, simulate
from paceline.workload.arrivals import Poisson
from paceline.workload.distributions import Fixed
from paceline.workload.lengths import Lengths
from paceline.workload.workload import Workload
from running_server import serve_model

BLOCK_SIZE = 4
VOCABULARY = 50
STOP = 7


def next_token(tokens: "array[int]", sampling: SamplingParams) -> int:
    return (sampling.seed * 31 + len(tokens) * 17 + tokens[-1]) % VOCABULARY


def num_forced(tokens: "array[int]", sampling: SamplingParams) -> int:
    return 2 if len(tokens) % 11 == 0 else 0


def recorded_engine(path: Path, num_blocks: int = 40, num_rows: int = 6, num_tokens: int = 24) -> Engine:
    """The real engine and scheduler with a small pool; only the model is a script."""
    scheduler = Scheduler(
        SchedulerLimits(num_rows, num_tokens, 4096), KvManager(num_blocks, BLOCK_SIZE), LearnedReserve(BLOCK_SIZE)
    )
    context, pool = scheduler.effective_context, scheduler.kv.pool_tokens
    limits = EngineLimits(context, pool, BLOCK_SIZE, num_rows, VOCABULARY, "scripted", 1)
    executor = ScriptedExecutor(BLOCK_SIZE, next_token, num_forced)
    return Engine(scheduler, executor, GrammarQueue(GrammarCompiler(VOCABULARY)), limits, EngineConfig(), Journal(path))


def random_request(number: int, random: Random) -> Request:
    """Prompts share beginnings, some are scored, some ask for several choices; priorities differ."""
    stem = [random.randrange(3) * 10 + index % 7 for index in range(random.choice((4, 12, 30)))]
    tail = [random.randrange(VOCABULARY) for _ in range(random.randrange(1, 40))]
    return Request(
        RequestId(number),
        token_array([*stem, *tail]),
        StopRule(random.randrange(1, 60), stop_token_ids=frozenset((STOP,)) if random.random() < 0.5 else frozenset()),
        SamplingParams(seed=number, num_prompt_logprobs=0 if random.random() < 0.15 else None),
        num_sequences=random.choice((1, 1, 1, 3)),
        arrival_s=time.monotonic(),
        priority=random.choice((0, 0, 1)),
    )


def drive(engine: Engine, random: Random, num_requests: int) -> None:
    """Requests come, are cancelled and are finished by a stop string, in between steps and while nothing runs."""
    for number in range(num_requests):
        engine.submit(random_request(number, random))
        for _ in range(random.choice((0, 0, 1, 3, 40))):
            for output in engine.step():
                if output.finish_reason is None and random.random() < 0.02:
                    engine.finish(output.request_id, output.choice_index, 1)
        if random.random() < 0.1:
            engine.cancel(RequestId(random.randrange(number + 1)))
    while engine.has_work():
        engine.step()


@pytest.mark.parametrize("seed", range(6))
def test_a_fresh_scheduler_makes_the_recorded_plans(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "recording.jsonl"
    engine = recorded_engine(path)
    drive(engine, Random(seed), 60)
    assert engine.scheduler.num_preemptions > 0, "the pool is small enough to be interesting"
    [part] = replay_all(read_recording(path), keeps_records=True)
    assert part.num_steps == engine.scheduler.step_index
    assert part.num_preemptions == engine.scheduler.num_preemptions
    assert part.num_requests == 60


@pytest.mark.parametrize(
    ("name", "value"),
    [("AGEING_STEPS", 2), ("PRIOR_OUTPUT_TOKENS", 2), ("recompute_cost", lambda num_tokens: -num_tokens)],
)
def test_a_changed_judgement_makes_the_replay_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    path = tmp_path / "recording.jsonl"
    drive(recorded_engine(path), Random(1), 60)
    monkeypatch.setattr(policy, name, value)
    with pytest.raises(PlanDiffersError, match="step"):
        replay_all(read_recording(path))


def replayed_by(source: Path, recording: Path) -> "subprocess.CompletedProcess[str]":
    """`paceline replay` in a process of its own, with the package at `source`: -S keeps the import hook of an editable
    installation from putting its own in the place.
    """
    command = [sys.executable, "-S", "-m", "paceline.cli", "replay", str(recording)]
    path = os.pathsep.join((str(source), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    return subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True, timeout=60)


def test_the_command_tells_the_same_scheduler_from_one_with_a_line_changed(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    drive(recorded_engine(recording), Random(2), 60)
    source = Path(paceline.__file__).parents[1]
    same = replayed_by(source, recording)
    assert same.returncode == 0, same.stderr
    assert "all identical" in same.stdout

    changed = tmp_path / "changed"
    shutil.copytree(source / "paceline", changed / "paceline", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    file = changed / "paceline" / "core" / "policy.py"
    line = "    return (is_fresh, sequence.debt if is_fresh else last_served_step, sequence.sequence_id)"
    text = file.read_text()
    assert line in text
    file.write_text(text.replace(line, line.replace("sequence.debt", "-sequence.debt")))
    other = replayed_by(changed, recording)
    assert other.returncode == 1
    assert "the plans differ. step" in other.stderr


def test_every_start_of_an_engine_is_a_part_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    for seed in (1, 2):
        drive(recorded_engine(path), Random(seed), 12)
    assert [part.num_requests for part in replay_all(read_recording(path))] == [12, 12]


def test_recorded_requests_meet_another_policy_with_their_own_tokens_and_lengths(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    drive(recorded_engine(path), Random(4), 30)
    [part] = replay_all(read_recording(path), keeps_records=True)
    recorded = read_requests(path)
    scenario = Scenario(
        Workload(Lengths(Fixed(1), Fixed(1)), Poisson(1.0)),
        Policy(batch=6, chunk=24, pool_tokens=160, block_size=BLOCK_SIZE),
        LinearLaw(),
        trace=recorded.items(),
        requests=recorded,
    )
    found = simulate(scenario)
    lengths = sorted(record.output_tokens for record in part.records if record.output_tokens)
    assert sorted(record.output_tokens for record in found.records) == lengths
    assert sum(record.cached_tokens or 0 for record in found.records) > 0, "prompts share what they shared"


def test_a_step_time_is_fitted_to_the_recorded_steps(tmp_path: Path) -> None:
    """Steps that took exactly as long as a law says: the fit finds the law."""
    path = tmp_path / "recording.jsonl"
    drive(recorded_engine(path), Random(6), 60)
    law = FittedStepTime(4e-3, 2e-4, 8.0, 1e-6, 0.0, 3e-4)
    [part] = replay_all(read_recording(path))
    part.samples = [(work, law.step_s(work)) for work, _ in part.samples]
    assert part.num_steps == len(part.samples)
    said = write_fit(tmp_path / "fit.json", [part])
    fitted = parse_costs(f"fitted:{tmp_path / 'fit.json'}").step_time
    assert f"{part.num_steps} steps" in said
    for work, seconds in part.samples:
        assert fitted.step_s(work) == pytest.approx(seconds, rel=0.02)


def test_a_torn_last_line_ends_the_recording_and_any_other_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    drive(recorded_engine(path), Random(3), 12)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])
    [part] = replay_all(read_recording(path))
    assert part.num_requests == 12
    path.write_bytes(lines[0] + b"{]\n" + lines[1])
    with pytest.raises(RecordingError, match="line 2"):
        list(read_recording(path))
    path.write_bytes(lines[1])
    with pytest.raises(RecordingError, match="line 1: a Header is expected, got Submit"):
        list(read_recording(path))
    path.write_bytes(b"")
    with pytest.raises(RecordingError, match="is empty"):
        list(read_recording(path))


def test_the_live_engine_s_plans_replay_and_its_latencies_come_out(tmp_path: Path) -> None:
    """The real model, watched from outside its step loop."""
    path, random = tmp_path / "recording.jsonl", Random(5)
    engine = load_engine(
        EngineConfig(
            kv_memory_bytes=64 * 2**20, max_num_seqs=8, max_num_batched_tokens=64, num_threads=1, record=str(path)
        )
    )
    arrived_s: dict[int, float] = {}
    seen_s: dict[int, list[float]] = {}

    def step() -> None:
        for output in engine.step():
            assert output.finish_reason in (None, FinishReason.LENGTH)
            seen_s.setdefault(output.request_id, []).extend([time.monotonic()] * len(output.tokens))

    for number in range(16):
        prompt = token_array([random.randrange(10, 40_000) for _ in range(random.randrange(60, 180))])
        arrived_s[number] = time.monotonic()
        greedy, rule = SamplingParams(temperature=0.0), StopRule(random.randrange(2, 12))
        engine.submit(Request(RequestId(number), prompt, rule, greedy, arrival_s=arrived_s[number]))
        step()
        step()
    while engine.has_work():
        step()
    [part] = replay_all(read_recording(path), keeps_records=True)
    assert len(part.records) == 16
    live_ttft = spread(times[0] - arrived_s[number] for number, times in seen_s.items())
    live_itl = spread(b - a for times in seen_s.values() for a, b in pairwise(times))
    ttft = spread(record.event_times_s[0] - record.intended_s for record in part.records)
    itl = spread(b - a for r in part.records for a, b in pairwise(r.event_times_s))
    for live, simulated in ((live_ttft, ttft), (live_itl, itl)):
        assert live is not None
        assert simulated is not None
        for name in ("p50", "p99", "max"):
            # 1 %, and what another process may take away between a step's end and our looking at the clock.
            assert getattr(simulated, name) == pytest.approx(getattr(live, name), rel=0.01, abs=2e-3)


def test_a_server_s_recording_replays_after_stop_strings_and_clients_that_leave(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    flags = ("--record", str(path), "--kv-memory", "64MiB", "--max-num-batched-tokens", "48", "--max-num-seqs", "6")
    server = serve_model("smollm2-135m", *flags)
    try:
        client = server.openai()

        def ask(number: int) -> None:
            stop = ["e"] if number % 3 == 0 else None
            prompt = f"Number {number}. " + "The sea is wide and the night is long. " * (number % 4)
            stream = client.completions.create(
                model="smollm2-135m", prompt=prompt, max_tokens=12, stop=stop, stream=True
            )
            for count, _ in enumerate(stream):
                if number % 4 == 1 and count == 2:
                    stream.close()
                    return

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(ask, range(16)))
        client.completions.create(model="smollm2-135m", prompt="The end", max_tokens=2)
    finally:
        server.stop()
    lines = list(read_recording(path))
    assert any(isinstance(line, Finish) for line in lines)
    [part] = replay_all(lines, keeps_records=True)
    assert part.num_requests == 17
    assert part.num_steps > 20
