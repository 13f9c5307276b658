"""How fast the simulator is: requests/s of short requests, row-steps/s of a full batch, memory of a long run.

    python benchmarks/simulator.py [--requests 1000000]

One process, one core, CPU time. Short: 32 tokens in, 8 out, arriving faster than a batch of 64 serves. Rows: 256
streams of 512 tokens that never leave. Long: --requests short requests, of which nothing is kept.
"""

import argparse
import cProfile
import pstats
import resource
import time
from collections.abc import Iterator

from paceline.costs.step import LinearLaw
from paceline.sim.fleet import Fleet, Traffic
from paceline.sim.policies import Policy, PolicyKind
from paceline.sim.replica import Replica
from paceline.sim.requests import RequestMaker
from paceline.sim.router import RoundRobin
from paceline.workload.arrivals import ClosedLoop
from paceline.workload.distributions import Fixed
from paceline.workload.item import WorkItem
from paceline.workload.lengths import Lengths
from paceline.workload.workload import Workload

ROUNDS = 5
NUM_SHORT = 10_000
STREAMS, STREAM_TOKENS = 256, 512
MIB = 2**20


def short_items(num_requests: int) -> Iterator[WorkItem]:
    return Workload(Lengths(Fixed(32), Fixed(8)), ClosedLoop(1)).items(num_requests)


def run(items: Iterator[WorkItem], batch: int) -> float:
    """CPU seconds to the last answer of a closed loop that keeps the batch full."""
    policy = Policy(PolicyKind.CHUNKED, batch=batch, chunk=512, pool_tokens=2**18)
    fleet = Fleet([Replica(policy, LinearLaw())], RoundRobin(), RequestMaker())
    start = time.process_time()
    for _ in fleet.run(Traffic(items, concurrency=batch)):
        pass
    return time.process_time() - start


def streams() -> Iterator[WorkItem]:
    return Workload(Lengths(Fixed(32), Fixed(STREAM_TOKENS)), ClosedLoop(1)).items(STREAMS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=0, help="also a long run of so many")
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    options = parser.parse_args()
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(run, streams(), STREAMS)
        pstats.Stats(profile).sort_stats("tottime").print_stats(18)
        return
    short = [NUM_SHORT / run(short_items(NUM_SHORT), 64) for _ in range(ROUNDS)]
    rows = [STREAMS * STREAM_TOKENS / run(streams(), STREAMS) for _ in range(ROUNDS)]
    print(f"requests/s, 32 in, 8 out: best {max(short):,.0f}, worst {min(short):,.0f} of {ROUNDS}")
    print(f"row-steps/s, {STREAMS} rows: best {max(rows):,.0f}, worst {min(rows):,.0f} of {ROUNDS}")
    if options.requests:
        before = peak_mib()
        seconds = run(short_items(options.requests), 64)
        print(
            f"{options.requests:,} requests in {seconds:.0f} s; peak memory {peak_mib():.0f} MiB, {before:.0f} before"
        )


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


if __name__ == "__main__":
    main()
