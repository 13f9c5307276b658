"""`bench replay`: a recorded trace, request by request at its own times, or as much faster as asked."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path

from paceline.bench.endpoint import BenchError
from paceline.bench.experiment import Settings, Spot, hold, result_of
from paceline.bench.load import Caller
from paceline.bench.result import Experiment, Result
from paceline.workload.item import WorkItem
from paceline.workload.item_lines import read_items
from paceline.workload.traces import TraceReader, read_azure, read_burstgpt, read_mooncake

# What the first line of a file in each format holds, and nothing else does.
SIGNS: tuple[tuple[str, TraceReader, str], ...] = (
    ("ContextTokens", read_azure, "Azure"),
    ("Request tokens", read_burstgpt, "BurstGPT"),
    ('"hash_ids"', read_mooncake, "Mooncake"),
    ('"output_tokens"', read_items, "ours"),
)
MAX_REPLAYED = 1_000_000


def read_trace(path: Path, num_requests: int | None) -> list[WorkItem]:
    """The first requests of a trace; its format is seen from its first line. Raises ConfigError for a bad file."""
    try:
        with path.open(encoding="utf-8") as file:
            first = file.readline(65536)
            reader = next((reader for sign, reader, _ in SIGNS if sign in first), None)
            if reader is None:
                known = ", ".join(f"{name}: {sign}" for sign, _, name in SIGNS)
                raise BenchError(
                    f"trace {path}: its first line is of no known format; each has a field of its own ({known})"
                    if first
                    else f"trace {path}: is empty"
                )
            file.seek(0)
            items = list(islice(reader(file, str(path)), MAX_REPLAYED + 1 if num_requests is None else num_requests))
    except OSError as error:
        raise BenchError(f"trace {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BenchError(f"trace {path}: {error}") from error
    if num_requests is None and len(items) > MAX_REPLAYED:
        raise BenchError(f"trace {path}: holds more than {MAX_REPLAYED:,} requests; say how many with --requests")
    if not items:
        raise BenchError(f"trace {path}: holds no request with tokens")
    return items


async def measure_replay(caller: Caller, settings: Settings, label: str, items: Iterable[WorkItem]) -> Result:
    """Send the items when they say; those of a closed loop one after another."""
    work = list(items)
    spot = Spot(label, concurrency=1 if work[0].arrival_s is None else None)
    held = await hold(caller, replace(settings, num_requests=len(work)), spot, work)
    return result_of(Experiment.REPLAY, settings, [caller], [held])
