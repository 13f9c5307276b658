"""Metric families of what the engine says of itself. Sequences are choices: n = 3 makes three."""

from collections.abc import Iterator

from prometheus_client.metrics_core import Metric

from paceline.engine.contract import EngineCounters, EngineGauges
from paceline.observe.engine_reading import EngineReading
from paceline.observe.families import FamilyMaker, LabelledCounts

NOTHING = EngineGauges(0, 0, 0, 0, 0, 0, EngineCounters())


def gauge_families(make: FamilyMaker, reading: EngineReading) -> Iterator[Metric]:
    """The state now. An engine that does not answer runs nothing; what is open waits for it."""
    gauges = reading.gauges or NOTHING
    num_waiting = gauges.num_waiting if reading.gauges else reading.num_open_requests
    num_blocks = gauges.num_blocks_total
    blocks = {"in_use": gauges.num_blocks_in_use, "cached": gauges.num_blocks_cached}
    yield make.gauge("engine_up", "1 if the engine answered this scrape, else 0.", reading.gauges is not None)
    yield make.gauge("num_requests_running", "Sequences in the running batch.", gauges.num_running)
    yield make.gauge("num_requests_waiting", "Sequences waiting to be admitted.", num_waiting)
    yield make.gauges(
        "num_requests_waiting_by_reason",
        "Waiting sequences: capacity waits for its turn, deferred for a prefix that another sequence is computing.",
        "reason",
        {"capacity": num_waiting - gauges.num_following, "deferred": gauges.num_following},
    )
    yield make.gauge("num_open_requests", "Requests handed to the engine and not over.", reading.num_open_requests)
    yield make.gauge(
        "kv_cache_usage_perc",
        "Share of KV blocks that running sequences hold, 0 to 1. Cached blocks can be had and do not count.",
        gauges.num_blocks_in_use / num_blocks if num_blocks else 0.0,
    )
    yield make.gauges(
        "kv_blocks",
        "KV blocks by state: held by running sequences, cached for reuse, free.",
        "state",
        blocks | {"free": num_blocks - sum(blocks.values())},
    )
    yield make.counter("engine_restarts", "Engine processes started after one died.", reading.num_restarts)


def counter_families(make: FamilyMaker, counters: EngineCounters) -> Iterator[Metric]:
    """What only grows, over all engine processes of this server."""
    num_computed = counters.num_prompt_tokens - counters.num_cached_tokens
    sources: LabelledCounts = {("local_compute",): num_computed, ("local_cache_hit",): counters.num_cached_tokens}
    yield make.counter("engine_steps", "Steps the engine has run.", counters.num_steps)
    yield make.counter("num_preemptions", "Times a running sequence lost its blocks.", counters.num_preemptions)
    yield make.counter("prompt_tokens", "Prompt tokens of admitted sequences.", counters.num_prompt_tokens)
    yield make.counters("prompt_tokens_by_source", "Prompt tokens by where their KV came from.", ("source",), sources)
    yield make.counter("prompt_tokens_cached", "Prompt tokens found in the prefix cache.", counters.num_cached_tokens)
    yield make.counter("recomputed_tokens", "Tokens computed again after a preemption.", counters.num_recomputed_tokens)
    yield make.counter("generation_tokens", "Tokens sampled, wanted to the end or not.", counters.num_generated_tokens)
    yield make.counter("prefix_cache_queries", "Tokens looked up in the prefix cache.", counters.num_queried_tokens)
    yield make.counter("prefix_cache_hits", "Tokens of those that were found.", counters.num_cached_tokens)
    yield make.counter("kv_cache_evicted_blocks", "Cached KV blocks given up for others.", counters.num_evicted_blocks)
    yield make.histogram("iteration_tokens_total", "Tokens computed by a step.", counters.step_tokens)
