"""Starts mock servers, runs loads against them, and turns their send logs into the records a perfect client makes."""

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline.bench.endpoint import Abilities, Endpoint
from paceline.bench.experiment import open_caller
from paceline.bench.load import Load, LoadRun, run_load
from paceline.bench.prompts import prompt_of
from paceline.bench.record import RequestRecord, TokenCount
from paceline.workload.item import WorkItem
from paceline.workload.segments import new_segment

SCRIPT = Path(__file__).parent / "bench" / "mock_server.py"


@dataclass
class RunningMock:
    process: "subprocess.Popen[str]"
    url: str

    def log(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.url}/log", timeout=20) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def preferred() -> Iterator[None]:
    """Run, with the mocks started meanwhile, before whatever else the machine does, where that is allowed: tests of
    single milliseconds measure the client then, and not its neighbours.
    """
    if not hasattr(os, "sched_setscheduler"):
        yield
        return
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def start_mock(**law: Any) -> RunningMock:
    process = subprocess.Popen([sys.executable, str(SCRIPT), json.dumps(law)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return RunningMock(process, f"http://127.0.0.1:{int(process.stdout.readline())}")


@dataclass(frozen=True)
class Run:
    """A load that was run, and what the server found itself able to do."""

    load: LoadRun
    abilities: Abilities

    @property
    def records(self) -> tuple[RequestRecord, ...]:
        return self.load.records


def run_against(mock: RunningMock, load: Load, **endpoint: Any) -> Run:
    async def run() -> Run:
        async with open_caller(Endpoint(mock.url, **endpoint)) as caller:
            return Run(await run_load(caller, load), caller.abilities)

    return asyncio.run(run())


def items(num: int, output_tokens: int, gap_s: float | None = None, prompt_tokens: int = 24) -> list[WorkItem]:
    """Unique prompts, one every `gap_s`, or for a closed loop."""
    return [
        WorkItem(index, None if gap_s is None else index * gap_s, (new_segment(index, prompt_tokens),), output_tokens)
        for index in range(num)
    ]


def truth(run: Run, log: Sequence[dict[str, Any]], work: Sequence[WorkItem], seed: int = 0) -> list[RequestRecord]:
    """The records of a client without delay: every time from the server's log, the intended one from the schedule."""
    by_index = {record.index: record for record in run.records}
    by_prompt = {json.dumps(entry["prompt"]): entry for entry in log}
    made = []
    for item in work:
        entry = by_prompt[json.dumps(prompt_of(item, seed, run.abilities))]
        record, started_s = by_index[item.index], run.load.started_s
        times, tokens = zip(*entry["sends"], strict=True)
        made.append(
            replace(
                record,
                intended_s=record.sent_s if item.arrival_s is None else item.arrival_s,
                sent_s=entry["received_s"] - started_s,
                ended_s=entry["ended_s"] - started_s,
                prompt_tokens=item.prompt_tokens,
                output_tokens=sum(tokens),
                token_count=TokenCount.USAGE,
                event_times_s=tuple(time_s - started_s for time_s in times),
                event_tokens=tuple(tokens),
                read_sizes=(1,) * len(times),
            )
        )
    return made
