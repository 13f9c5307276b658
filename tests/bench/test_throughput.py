"""How many events the client itself can take: against a process that does nothing but send."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from mocks import items
from paceline.bench.endpoint import Abilities, Endpoint
from paceline.bench.exchange import open_session
from paceline.bench.load import Caller, Load, run_load
from paceline.bench.measures import Window, tokens_in

FLOOD = Path(__file__).parent / "flood_server.py"
NUM_STREAMS = 64
EVENTS_EACH = 1500
MIN_EVENTS_PER_CPU_S = 20_000


def test_the_client_takes_twenty_thousand_events_a_second_of_one_core_and_knows_its_lag() -> None:
    command = [sys.executable, str(FLOOD), str(NUM_STREAMS), str(EVENTS_EACH)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        abilities = Abilities("flood", takes_ids=True, fields=("stream_options",))

        async def run() -> tuple[float, float, object]:
            endpoint = Endpoint(url)
            load = Load(items(NUM_STREAMS, EVENTS_EACH), concurrency=NUM_STREAMS)
            async with open_session(endpoint) as session:
                cpu_s, started_s = time.process_time(), time.monotonic()
                found = await run_load(Caller(session, endpoint, abilities), load)
                return time.process_time() - cpu_s, time.monotonic() - started_s, found

        cpu_s, wall_s, found = asyncio.run(run())
        server.terminate()
    num_events = tokens_in(found.records, Window())
    assert num_events == NUM_STREAMS * EVENTS_EACH
    check = found.check
    print(
        f"{num_events / cpu_s:,.0f} events/s of a core, {num_events / wall_s:,.0f}/s of wall time, "
        f"{check.num_reads / cpu_s:,.0f} reads/s, lag p99 {1e3 * check.lag_p99_s:.1f} ms"
    )
    assert check.num_reads > num_events / 4, "mostly one event a read, or nothing is shown"
    assert num_events / cpu_s >= MIN_EVENTS_PER_CPU_S
    assert check.lag_max_s > 0
