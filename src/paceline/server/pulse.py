"""The server's pulse: one log line every 10 s while there is traffic, with what an operator wants at a glance.

Rates are differences of the engine's counters between two lines. An idle server says nothing; what ran since the last
line is told even when it has ended.
"""

import asyncio
import logging
import time
from dataclasses import dataclass

from paceline.engine.contract import EngineGauges
from paceline.errors import UnavailableError
from paceline.server.context import ServingContext

logger = logging.getLogger(__name__)

INTERVAL_S = 10.0
ANSWER_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Beat:
    """The engine's gauges at a moment."""

    now_s: float
    gauges: EngineGauges


async def beat(context: ServingContext, interval_s: float = INTERVAL_S) -> None:
    """Log a line an interval while there is traffic, until cancelled."""
    last = await take(context)
    while True:
        await asyncio.sleep(interval_s)
        now = await take(context)
        if last is not None and now is not None and has_traffic(last, now):
            logger.info("pulse", extra={"fields": pulse_fields(last, now)})
        last = now


def has_traffic(last: Beat, now: Beat) -> bool:
    """Whether the same engine has made steps since, or has work now. A new engine begins at step 0."""
    has_work = now.gauges.num_running + now.gauges.num_waiting > 0
    num_steps = now.gauges.step_index - last.gauges.step_index
    return num_steps > 0 or (num_steps == 0 and has_work)


async def take(context: ServingContext) -> Beat | None:
    """The gauges now; None when the engine can't answer."""
    try:
        gauges = await asyncio.wait_for(context.client.gauges(), ANSWER_WITHIN_S)
    except (UnavailableError, TimeoutError):
        return None
    return Beat(time.monotonic(), gauges)


def pulse_fields(last: Beat, now: Beat) -> dict[str, object]:
    """The facts of the time between two beats, and of its end."""
    seconds = now.now_s - last.now_s
    gauges, before, after = now.gauges, last.gauges.counters, now.gauges.counters
    num_cached = after.num_cached_tokens - before.num_cached_tokens
    num_prompt = after.num_prompt_tokens - before.num_prompt_tokens
    num_recomputed = after.num_recomputed_tokens - before.num_recomputed_tokens
    num_generated = after.num_generated_tokens - before.num_generated_tokens
    num_queried = after.num_queried_tokens - before.num_queried_tokens
    return {
        "running": gauges.num_running,
        "waiting": gauges.num_waiting,
        "kv_use_percent": round(100 * gauges.num_blocks_in_use / gauges.num_blocks_total, 1),
        "prefill_tokens_per_s": round((num_prompt - num_cached + num_recomputed) / seconds, 1),
        "decode_tokens_per_s": round(num_generated / seconds, 1),
        "preemptions": after.num_preemptions - before.num_preemptions,
        "hit_percent": round(100 * num_cached / num_queried, 1) if num_queried else None,
    }
