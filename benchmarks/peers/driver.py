"""One engine's turn: a process that loads it, does some works, prints a JSON line for each and ends.

Every measurement is preceded by a warm-up of its own shape and by a probe of the machine; while it runs, the watcher
sees who else uses the cores.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from work import WORKS, Engine, Figures, Work, figures_of, serve, streams_of, warm_up_streams

Watched = dict[str, Any]
SETTLE_S = 0.5  # Worker threads of some engines spin for 0.2 s after their last work; the probe must not meet them.


@dataclass(frozen=True)
class About:
    """What was measured, as the table says it. `interface`: in process or over HTTP."""

    version: str
    weights: str
    kv_cache: str
    interface: str
    flags: str


class Session(Protocol):
    """A loaded engine, however it is driven."""

    def warm_up(self, work: Work, seed: str) -> None:
        """Whatever must not be on the clock."""

    def measure(self, work: Work, seed: str) -> Figures:
        """Do the work once."""

    def about(self, work: Work) -> About:
        """How this work is done."""


class InProcess:
    """A session of an engine that steps in this process."""

    def __init__(self, engine: Engine, about: About) -> None:
        self._engine = engine
        self._about = about

    def warm_up(self, work: Work, seed: str) -> None:
        serve(self._engine, warm_up_streams(work, seed))

    def measure(self, work: Work, seed: str) -> Figures:
        streams = streams_of(work, seed)
        serve(self._engine, streams)
        return figures_of(work, streams) | {"peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}

    def about(self, work: Work) -> About:
        return self._about


@dataclass(frozen=True)
class Turn:
    """What a driver is asked to do. `options`: the engine's own, from the table of peers."""

    peers: Path
    format_name: str
    options: dict[str, object]
    works: tuple[Work, ...]
    seed: str
    num_threads: int


def read_turn() -> Turn:
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--peers-dir", type=Path, required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("--options", type=json.loads, default={})
    parser.add_argument("--work", nargs="+", choices=WORKS, required=True)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--threads", type=int, default=2)
    told = parser.parse_args()
    works = tuple(WORKS[name] for name in told.work)
    return Turn(told.peers_dir.resolve(), told.format, told.options, works, told.seed, told.threads)


def probe(peers: Path) -> Figures:
    """Memory read and int8 arithmetic of the machine at this moment."""
    answer = subprocess.run([peers / "probe"], capture_output=True, text=True, check=True).stdout
    read_gb_s, vnni_gop_s = answer.split()
    return {"read_gb_per_s": float(read_gb_s), "vnni_gop_per_s": float(vnni_gop_s)}


@contextmanager
def watching(peers: Path) -> Iterator[Callable[[], Watched]]:
    """Runs the watcher of others' use of the cores; gives what asks it for all that it has seen since asked before."""
    with subprocess.Popen([peers / "sharing"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        requests, answers = watcher.stdin, watcher.stdout
        assert requests is not None
        assert answers is not None

        def ask() -> Watched:
            requests.write("\n")
            requests.flush()
            return json.loads(answers.readline())

        try:
            yield ask
        finally:
            watcher.terminate()  # Closing the pipe may not end it: an engine's processes inherit it.


def take_turn(load: Callable[[Turn], Session]) -> None:
    """Load the engine and do the works, a JSON line each on standard output."""
    turn = read_turn()
    # From before the load: the longer the watcher lives, the surer its best rate; and some engines bind their process,
    # and what it starts after that, to some of the CPUs.
    with watching(turn.peers) as ask_watcher:
        begin_s = time.perf_counter()
        session = load(turn)
        load_s = time.perf_counter() - begin_s
        for work in turn.works:
            line = measure_once(session, work, turn, ask_watcher)
            print(json.dumps(line | {"load_s": load_s}), flush=True)


def measure_once(session: Session, work: Work, turn: Turn, ask_watcher: Callable[[], Watched]) -> dict[str, object]:
    """The line of a work, but for the loading."""
    begin_s = time.perf_counter()
    session.warm_up(work, turn.seed)
    time.sleep(SETTLE_S)
    line = {"work": work.name, "probe": probe(turn.peers)}
    ask_watcher()  # What came before is not this measurement's.
    line |= {"figures": session.measure(work, turn.seed), "sharing": ask_watcher()}
    return line | {"about": vars(session.about(work)), "took_s": time.perf_counter() - begin_s}
