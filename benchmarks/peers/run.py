"""Paceline beside other engines on the same weights, in alternating rounds: who is ahead, by how much, how surely.

    benchmarks/peers/setup.sh PEERS_DIR
    python benchmarks/peers/run.py PEERS_DIR --rounds 5 [--peers paceline openvino:int4 …] [--work decode-1 …]

In a round every engine does each work once, in a process started for it, one engine at a time; the order turns from
round to round. Before each measurement the machine's memory read and int8 arithmetic are probed; beside it, in every
engine's turn, a watcher sees when others use the cores (`sharing.c`). One JSON line a measurement goes to --out, which
may be continued; `report.py` makes table and plot of one or more such files.
"""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from report import write_report
from work import WORKS, Work

from paceline.bench.machine import machine, versions
from peers import HERE, OURS, PEERS, Peer, chosen, environment_of

TURN_TIMEOUT_S = 900.0
WORST_LINES = 15


@dataclass(frozen=True)
class Plan:
    """What is to be measured."""

    peers_dir: Path
    peers: list[Peer]
    works: list[Work]
    num_threads: int
    ours: dict[str, object]
    only_contenders: bool

    def turns(self, round_index: int) -> Iterator[tuple[Peer, list[Work]]]:
        """Work by work all that start quickly, close to each other in time; then the slow starters, all works each."""
        quick = [peer for peer in self.peers if not peer.starts_slowly]
        shift = round_index % max(1, len(quick))
        for work in self.works:
            yield from ((peer, [work]) for peer in quick[shift:] + quick[:shift] if work in self.works_of(peer))
        slow = [peer for peer in self.peers if peer.starts_slowly and self.works_of(peer)]
        yield from ((peer, self.works_of(peer)) for peer in (slow[::-1] if round_index % 2 else slow))

    def works_of(self, peer: Peer) -> list[Work]:
        if not self.only_contenders or peer.contends is None:
            return self.works
        return [work for work in self.works if work.name in peer.contends]

    def round_s(self) -> float:
        return sum(peer.turn_s(works) for peer, works in self.turns(0))


def take_turn(plan: Plan, peer: Peer, works: list[Work], seed: str) -> list[dict[str, object]]:
    """The lines of a turn; one with `failed` when it did not end well."""
    options = peer.options | (plan.ours if peer.engine == OURS else {})
    command = [peer.python(plan.peers_dir), str(HERE / peer.script), "--peers-dir", str(plan.peers_dir)]
    command += ["--format", peer.format_name, "--options", json.dumps(options), "--threads", str(plan.num_threads)]
    command += ["--seed", seed, "--work", *[work.name for work in works]]
    # A session of its own, so that whatever the driver started ends with it.
    driver = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment_of(peer, plan.peers_dir),
        start_new_session=True,
    )
    try:
        output, errors = driver.communicate(timeout=TURN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return [{"failed": f"took more than {TURN_TIMEOUT_S:.0f} s"}]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"work"')]
    if driver.returncode:
        print(f"{peer.name} failed:", *errors.splitlines()[-WORST_LINES:], sep="\n  ", file=sys.stderr)
        lines.append({"failed": errors.strip().splitlines()[-1:] or [f"exit status {driver.returncode}"]})
    return lines


def measure(plan: Plan, rounds: int, out: Path) -> None:
    """Append every line to `out` as it comes."""
    run = datetime.now(UTC).isoformat(timespec="seconds")
    header = {"run": run, "command": shlex.join(sys.argv), "machine": machine(), "versions": versions()}
    header |= {"threads": plan.num_threads, "ours": plan.ours}
    begin_s = time.perf_counter()
    with out.open("a", encoding="utf-8") as file:
        print(json.dumps(header), file=file, flush=True)
        for round_index in range(rounds):
            for peer, works in plan.turns(round_index):
                for line in take_turn(plan, peer, works, f"{run}/{round_index}"):
                    line = {"run": run, "round": round_index, "engine": peer.engine, "format": peer.format_name, **line}
                    print(json.dumps(line), file=file, flush=True)
                    print(said(line, time.perf_counter() - begin_s), flush=True)


def said(line: dict[str, object], at_s: float) -> str:
    """A measurement in a line of text."""
    start = f"{at_s:6.0f} s  round {line['round']}  {line['engine']}:{line['format']:6s}"
    if "failed" in line:
        return f"{start} failed: {line['failed']}"
    figures = "  ".join(f"{name} {value:.1f}" for name, value in line["figures"].items())
    probed, shared_cores = line["probe"], line["sharing"]["shared_cores"]
    shares = " and ".join("–" if share is None else f"{share:.0%}" for share in shared_cores)
    machine_now = f"{probed['read_gb_per_s']:.0f} GB/s {probed['vnni_gop_per_s']:.0f} GOP/s, cores shared {shares}"
    return (
        f"{start} {line['work']:14s} {figures}  [{machine_now}; {line['took_s']:.1f} s + {line['load_s']:.1f} s load]"
    )


def plan_of(options: argparse.Namespace) -> Plan:
    """What was asked for and is installed."""
    peers_dir = options.peers_dir.resolve()
    for program in ("probe", "sharing"):
        if not (peers_dir / program).exists():
            raise SystemExit(f"{peers_dir / program} is missing: run benchmarks/peers/setup.sh {options.peers_dir}")
    peers = []
    for peer in chosen(options.peers):
        if peer.is_installed(peers_dir):
            peers.append(peer)
        else:
            print(f"left out, not installed: {peer.name} (benchmarks/peers/setup.sh {options.peers_dir} {peer.engine})")
    works = [WORKS[name] for name in options.work]
    return Plan(peers_dir, peers, works, options.threads, options.ours, options.contenders)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers_dir", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", nargs="+", default=list(PEERS), help="names such as openvino or openvino:int4")
    parser.add_argument("--work", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--contenders", action="store_true", help="leave out what was seen far from the best at a work")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ours", type=json.loads, default={}, help="more of Paceline's EngineConfig, as JSON")
    parser.add_argument("--out", type=Path, default=Path("peers.jsonl"))
    parser.add_argument("--estimate", action="store_true", help="say how long it takes, and stop")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # So that the driver is ended too.
    plan = plan_of(options)
    minutes = plan.round_s() / 60
    total = options.rounds * minutes
    print(f"about {total:.0f} minutes: {options.rounds} rounds of {minutes:.1f}, {len(plan.peers)} engines and formats")
    if options.estimate:
        return
    measure(plan, options.rounds, options.out)
    write_report([options.out], options.out.with_suffix(".html"))


if __name__ == "__main__":
    main()
