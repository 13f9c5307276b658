"""`bench hol`: head-of-line blocking. Short streams run steadily; a long prompt joins; how long do they stand still?"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.bench.endpoint import BenchError
from paceline.bench.experiment import NO_END, Settings, Spot, held, result_of
from paceline.bench.load import Caller, Load, LoadRun, run_load
from paceline.bench.measures import WHOLE_RUN, Spread, Window, gaps_s, spread
from paceline.bench.record import RequestRecord
from paceline.bench.result import Experiment, Result
from paceline.workload.arrivals import ClosedLoop
from paceline.workload.item import WorkItem
from paceline.workload.segments import new_segment

# Far above any index that the streams reach.
INJECTED_INDEX = 10**9
INJECTED_OUTPUT_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Stall:
    """What one injected prompt did to the streams. `stall_s`: their longest gap while it was prefilled."""

    before: Spread | None
    during: Spread | None
    after: Spread | None
    stall_s: float
    long_ttft_s: float | None


async def measure_hol(caller: Caller, settings: Settings, num_streams: int, long_prompt_tokens: int) -> Result:
    """Inject one long prompt in the middle of the measured time, with `num_streams` streams before, during, after."""
    longest = caller.abilities.max_model_len
    if longest is not None and long_prompt_tokens + INJECTED_OUTPUT_TOKENS > longest:
        raise BenchError(f"a prompt of {long_prompt_tokens} tokens does not fit the server's context of {longest}")
    label = f"{num_streams} streams, {long_prompt_tokens}-token prompt"
    started_s = time.monotonic()
    streams = Load(
        items=replace(settings.workload, arrivals=ClosedLoop(num_streams)).items(NO_END),
        label=label,
        concurrency=num_streams,
        duration_s=settings.duration_s,
        timeout_s=settings.timeout_s,
        prompt_seed=settings.workload.seed,
    )
    long_item = WorkItem(
        index=INJECTED_INDEX,
        arrival_s=(settings.warmup_s + settings.duration_s) / 2,
        prompt=(new_segment(INJECTED_INDEX, long_prompt_tokens),),
        output_tokens=INJECTED_OUTPUT_TOKENS,
    )
    injection = replace(streams, items=(long_item,), concurrency=None)
    with settings.watch(label, None) as watcher:
        both = await asyncio.gather(
            run_load(caller, streams, watcher.on_record, started_s),
            run_load(caller, injection, watcher.on_record, started_s),
        )
    run = LoadRun(both[0].records + both[1].records, both[0].check, started_s)
    measured = held(caller, settings, Spot(label, concurrency=num_streams), run)
    measured = replace(measured, point=replace(measured.point, injected=(INJECTED_INDEX,), limited_by=""))
    return result_of(Experiment.HOL, settings, [caller], [measured])


def stall_of(records: Sequence[RequestRecord], injected: Sequence[int], window: Window = WHOLE_RUN) -> Stall | None:
    """Compare the streams' gaps before, during and after the prefill of the first injected request; None when it was
    never sent. A gap belongs to `during` when any part of it does.
    """
    long = next((record for record in records if record.index in injected), None)
    if long is None:
        return None
    begin_s = long.sent_s
    end_s = long.event_times_s[0] if long.event_times_s else long.ended_s
    streams = [record for record in records if record.index not in injected]
    before = [gap for record in streams for gap in gaps_s(record, Window(window.start_s, begin_s))]
    during, after = [], []
    for record in streams:
        for earlier, later in zip(record.event_times_s, record.event_times_s[1:], strict=False):
            if later >= begin_s and earlier <= end_s:
                during.append(later - earlier)
            elif end_s < earlier and window.holds(later):
                after.append(later - earlier)
    long_ttft_s = end_s - long.intended_s if long.event_times_s else None
    return Stall(spread(before), spread(during), spread(after), max(during, default=0.0), long_ttft_s)
