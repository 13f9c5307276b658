"""Prefill and decode on separate replicas: how many of each, beside what sharing needs.

A prefill replica is an M/G/1 queue of prompts; a decode replica never waits for a prompt. The prompt's KV crosses a
link between them once, which adds to TTFT. Both pools use the same kind of replica here.
"""

from dataclasses import dataclass
from math import ceil, floor

from paceline.costs.capacity import ROUNDING, TAIL, Replica, largest_that, queue_wait_s
from paceline.costs.question import Question, price_per_million_tokens
from paceline.costs.units import digits, timed


@dataclass(frozen=True, slots=True)
class Pools:
    """Replicas of each kind. `transfer_s`: of one prompt's KV, which is part of the TTFT."""

    num_prefill_replicas: int
    num_decode_replicas: int
    num_cards: int
    decode_batch: int
    tpot_s: float
    transfer_s: float
    ttft_p99_s: float
    price_per_million_tokens: float | None
    reasons: tuple[str, ...]


def plan_pools(question: Question) -> Pools | None:
    """Pools for the question's rate; None without a rate or where a target is out of reach for any number."""
    replica, targets = question.replica, question.targets
    rate_per_s, link = replica.load.rate_per_s, replica.estimator.hardware.link_bytes_per_s
    limit = replica.largest_decode_batch(targets)
    if rate_per_s is None or link is None or limit == 0:
        return None
    transfer_s = replica.estimator.kv_bytes(replica.load.input_tokens) / (link * replica.estimator.num_cards)
    num_prefill = _prefill_replicas(replica, rate_per_s, transfer_s, targets.ttft_s)
    if num_prefill is None:
        return None
    step_s = replica.decode_step_s(limit)
    rows = rate_per_s * replica.load.output_tokens * step_s
    num_decode = max(1, ceil(rows / (limit * replica.margins.utilization) - 1e-9))
    return _pools(question, num_prefill, num_decode, transfer_s)


def _prefill_ttft_s(replica: Replica, rate_per_s: float, transfer_s: float) -> float:
    """p99 of the wait, the prefill and the transfer."""
    share = rate_per_s * replica.prefill_s
    return queue_wait_s(share, replica.prefill_s, replica.load.input_variation)[1] + replica.own_prefill_s + transfer_s


def _prefill_replicas(replica: Replica, rate_per_s: float, transfer_s: float, target_s: float | None) -> int | None:
    """The fewest below the planned utilization and inside the TTFT target; None where no number is."""
    if target_s is not None and replica.own_prefill_s + transfer_s > target_s:
        return None
    load = rate_per_s * replica.prefill_s
    # Also where all of a replica may be used, less than all is: at its capacity a queue has no end.
    fewest = max(ceil(load / replica.margins.utilization - ROUNDING), floor(load * (1.0 + ROUNDING)) + 1)
    if target_s is None:
        return fewest
    allowed_s = target_s

    def misses(num_replicas: int) -> bool:
        return num_replicas < fewest or _prefill_ttft_s(replica, rate_per_s / num_replicas, transfer_s) > allowed_s

    # With a share below TAIL nobody waits at p99.
    enough = fewest + ceil(load / TAIL) + 1
    return largest_that(misses, enough) + 1


def _pools(question: Question, num_prefill: int, num_decode: int, transfer_s: float) -> Pools:
    replica, price = question.replica, question.price_per_gpu_hour
    rate_per_s, num_output = replica.load.rate_per_s or 0.0, replica.load.output_tokens
    batch, step_s = _decode_state(replica, rate_per_s / num_decode)
    num_cards = (num_prefill + num_decode) * replica.estimator.num_cards
    and_target = "" if question.targets.ttft_s is None else " and inside the TTFT target"
    reasons = (
        f"prefill pool: {rate_per_s:g}/s × {timed(replica.prefill_s)} = {digits(rate_per_s * replica.prefill_s)} "
        f"replicas, below {replica.margins.utilization:.0%} each{and_target}: {num_prefill:,}",
        f"decode pool: {rate_per_s * num_output:,.0f} tokens/s on {num_decode:,}: {batch:,} sequences at "
        f"{timed(step_s)} each",
        f"a prompt's KV crosses the link in {timed(transfer_s)}",
    )
    return Pools(
        num_prefill_replicas=num_prefill,
        num_decode_replicas=num_decode,
        num_cards=num_cards,
        decode_batch=batch,
        tpot_s=step_s,
        transfer_s=transfer_s,
        ttft_p99_s=_prefill_ttft_s(replica, rate_per_s / num_prefill, transfer_s),
        price_per_million_tokens=None
        if price is None
        else price_per_million_tokens(price, num_cards, rate_per_s * num_output),
        reasons=reasons,
    )


def _decode_state(replica: Replica, rate_per_s: float) -> tuple[int, float]:
    """(batch, step) of a replica that only decodes: the smallest batch that keeps up, found by iterating upwards."""
    batch = 1
    while (needed := ceil(rate_per_s * replica.load.output_tokens * replica.decode_step_s(batch) - 1e-9)) > batch:
        batch = needed
    return batch, replica.decode_step_s(batch)
