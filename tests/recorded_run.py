"""A short recorded run: the engine's scheduler under the journal, its model a script."""

from array import array
from pathlib import Path

from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.policy import LearnedReserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.engine.journal import Journal, JournaledScheduler
from paceline.exec.scripted import ScriptedExecutor


def _constant(tokens: "array[int]", sampling: SamplingParams) -> int:
    return 3


def record_run(path: Path) -> Path:
    """Three requests of 8, 9 and 10 tokens with six tokens to come, in seven steps, written to `path`."""
    journal = Journal(path)
    inner = Scheduler(SchedulerLimits(4, 64, 512), KvManager(64, 4), LearnedReserve(4))
    scheduler = JournaledScheduler(inner, journal)
    loop = StepLoop(scheduler, ScriptedExecutor(4, _constant))
    for number in range(3):
        scheduler.submit(Request(RequestId(number), array("i", range(1, 9 + number)), StopRule(6)))
    while inner.has_work():
        loop.step(0.0)
    journal.flush()
    return path
