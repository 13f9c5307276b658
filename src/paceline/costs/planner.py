"""The planner: from a target to a fleet, in closed form, each answer with its arithmetic.

Owns the steps from a question to a number of replicas: does it fit, what can a replica take inside its targets, how
many replicas keep each below the planned utilization, what that costs, what binds. What to change next is in
`changes.py`; separate pools for prefill and decode in `pools.py`.

A planner that looks at decode alone says one replica of 8 H100 serves Llama-3-70B for 50 requests/s (1000 tokens in,
256 out, 30 ms a token). Prefill alone needs 1.27 of them; both share the cards, and three is the answer.
"""

from dataclasses import dataclass
from math import ceil

from paceline.costs.capacity import OperatingPoint, Replica, broken_targets
from paceline.costs.load import Targets
from paceline.costs.memory import MemoryFit, memory_fit, memory_reasons
from paceline.costs.question import Question, price_per_million_tokens
from paceline.costs.speculation import MAX_BATCH
from paceline.costs.step import decode_work, prefill_work
from paceline.costs.units import digits, sized, timed


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas for a rate. `point`: each of them under its share of the load; `utilization`: of its capacity."""

    num_replicas: int
    num_cards: int
    utilization: float
    point: OperatingPoint
    price_per_million_tokens: float | None


@dataclass(frozen=True, slots=True)
class DecodeAlone:
    """What a planner that ignores prefill would say of a replica. `num_replicas` for the rate, as a fraction."""

    batch: int
    tpot_s: float
    tokens_per_s: float
    num_replicas: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer. `capacity`: a replica at its largest batch inside the targets; None when even one sequence is too
    much, and `refusal` says why. `binds`: what stops the batch from growing.
    """

    memory: MemoryFit
    capacity: OperatingPoint | None
    decode_alone: DecodeAlone | None
    fleet: Fleet | None
    binds: str
    refusal: str | None
    reasons: tuple[str, ...]
    price_per_million_tokens: float | None


def plan(question: Question) -> Plan:
    """Answer a question."""
    replica = question.replica
    memory = memory_fit(replica.estimator, replica.load, replica.margins)
    reasons = memory_reasons(memory, replica.estimator, replica.load)
    refusal = _refusal(question, memory)
    if refusal is not None:
        return Plan(
            memory, None, None, None, "memory" if memory.num_sequences == 0 else "targets", refusal, reasons, None
        )
    capacity = replica.capacity(question.targets)
    assert capacity is not None, "what is not refused can be served"
    alone = _decode_alone(replica, question.targets)
    fleet = _fleet(question, capacity)
    binds = what_binds(replica, capacity, question.targets)
    price = _price(question, replica.estimator.num_cards, capacity.rate_per_s)
    reasons += _capacity_reasons(replica, capacity, alone, binds)
    if fleet is not None:
        reasons += _fleet_reasons(replica, capacity, fleet)
    return Plan(memory, capacity, alone, fleet, binds, None, reasons, price)


def _refusal(question: Question, memory: MemoryFit) -> str | None:
    replica, targets = question.replica, question.targets
    load, cards = replica.load, replica.estimator.num_cards
    if memory.kv_bytes <= 0:
        return (
            f"does not fit: weights {sized(memory.weights_bytes)} and workspace {sized(memory.workspace_bytes)} leave "
            f"nothing of {sized(memory.memory_bytes)} on {cards} card{'s' if cards > 1 else ''}"
        )
    if memory.num_sequences < (load.num_sessions or 1):
        return (
            f"does not fit: {load.num_sessions or 1} sequences of {load.last_context:,} tokens need "
            f"{sized((load.num_sessions or 1) * memory.sequence_bytes)}, {sized(memory.kv_bytes)} are left for KV: "
            f"{memory.num_sequences} sequences"
        )
    if load.last_context > replica.estimator.model.max_context:
        return (
            f"{load.input_tokens:,} + {load.output_tokens:,} tokens exceed the model's context of "
            f"{replica.estimator.model.max_context:,}"
        )
    alone = replica.at_part(1)
    broken = broken_targets(alone, targets)
    if broken:
        return (
            f"{' and '.join(broken)} out of reach: a request alone on a replica has a TPOT of {timed(alone.tpot_s)} "
            f"and a TTFT of {timed(alone.ttft_p99_s)} (p99)"
        )
    return None


def what_binds(replica: Replica, capacity: OperatingPoint, targets: Targets) -> str:
    """Why the batch is not one larger."""
    if is_part(replica, capacity):
        return " and ".join(broken_targets(replica.at_batch(1), targets))
    if capacity.batch >= replica.memory_limit:
        return "KV memory"
    if capacity.batch >= MAX_BATCH:
        return "the largest batch the planner looks at"
    return " and ".join(broken_targets(replica.at_batch(capacity.batch + 1), targets))


def _decode_alone(replica: Replica, targets: Targets) -> DecodeAlone:
    batch = replica.largest_decode_batch(targets)
    step_s = replica.decode_step_s(batch)
    rate_per_s = replica.load.rate_per_s
    demand = None if rate_per_s is None else rate_per_s * replica.load.output_tokens * step_s / batch
    return DecodeAlone(batch, step_s, batch / step_s, demand)


def _fleet(question: Question, capacity: OperatingPoint) -> Fleet | None:
    """The fewest replicas that stay below the planned utilization."""
    replica = question.replica
    rate_per_s = replica.load.rate_per_s
    if rate_per_s is None:
        return None
    num_replicas = max(1, ceil(rate_per_s / (capacity.rate_per_s * replica.margins.utilization) - 1e-9))
    point = replica.at_rate(rate_per_s / num_replicas)
    assert point is not None, "a share of the load is below the capacity"
    num_cards = num_replicas * replica.estimator.num_cards
    return Fleet(
        num_replicas=num_replicas,
        num_cards=num_cards,
        utilization=rate_per_s / (num_replicas * capacity.rate_per_s),
        point=point,
        price_per_million_tokens=_price(question, num_cards, rate_per_s),
    )


def _price(question: Question, num_cards: int, rate_per_s: float) -> float | None:
    if question.price_per_gpu_hour is None:
        return None
    tokens_per_s = rate_per_s * question.replica.load.output_tokens
    return price_per_million_tokens(question.price_per_gpu_hour, num_cards, tokens_per_s)


def _capacity_reasons(replica: Replica, capacity: OperatingPoint, alone: DecodeAlone, binds: str) -> tuple[str, ...]:
    load = replica.load
    together = replica.num_prefilled_together
    prompts = f" ({together} prompts together reach the ridge point)" if together > 1 else ""
    return (
        intensity_reason(replica, capacity.batch),
        _step_reason(replica, capacity.batch),
        f"prefill: {load.computed_tokens:,} tokens take the cards for {timed(replica.prefill_s)}{prompts}",
        f"decode alone: {alone.batch:,} sequences at {timed(alone.tpot_s)} = {alone.tokens_per_s:,.0f} tokens/s",
        *_shared_reasons(replica, capacity, binds),
    )


def is_part(replica: Replica, capacity: OperatingPoint) -> bool:
    """Whether the replica takes less than what keeps one sequence under way."""
    return capacity.batch == 1 and capacity.rate_per_s < replica.at_batch(1).rate_per_s


def _shared_reasons(replica: Replica, capacity: OperatingPoint, binds: str) -> tuple[str, str]:
    """How prefill and decode share the cards, and the rate that follows."""
    step, prefill, tpot = timed(capacity.decode_step_s), timed(replica.prefill_s), timed(capacity.tpot_s)
    rate, num_output = f"{digits(capacity.rate_per_s, 4)} requests/s", replica.load.output_tokens
    if is_part(replica, capacity):
        full = replica.at_batch(1)
        return (
            f"both share the cards: with a sequence always under way, {digits(full.rate_per_s, 4)} requests/s, prefill "
            f"takes {full.prefill_share:.0%}, TPOT is {timed(full.tpot_s)} and TTFT {timed(full.ttft_p99_s)} (p99): "
            f"that breaks: {binds}",
            f"capacity of a replica: {rate}; prefill then takes {digits(capacity.rate_per_s, 4)}/s × {prefill} = "
            f"{capacity.prefill_share:.0%}, TPOT is {tpot}, TTFT {timed(capacity.ttft_p99_s)} (p99)",
        )
    return (
        f"both share the cards: with {capacity.batch:,} sequences TPOT = {step} + "
        f"{capacity.batch:,} × {prefill} / {num_output:,} = {tpot}; one more breaks: {binds}",
        f"capacity of a replica: {capacity.batch:,} / ({num_output:,} × {tpot}) = {rate}",
    )


def intensity_reason(replica: Replica, batch: int) -> str:
    """FLOPs a byte of prefill and decode beside the ridge point, which says what each waits for."""
    estimator, load = replica.estimator, replica.load
    together = replica.num_prefilled_together
    prefill = estimator.intensity(prefill_work(together, load.computed_tokens, load.cached_tokens))
    decode = estimator.intensity(decode_work(batch, load.mean_context))
    ridge = estimator.hardware.ridge_flops_per_byte
    bounds = ["arithmetic" if intensity > ridge else "memory" for intensity in (prefill, decode)]
    return (
        f"intensity: prefill {digits(prefill)} FLOP/byte (waits for {bounds[0]}), decode of {batch:,} sequences "
        f"{digits(decode)} ({bounds[1]}); the ridge point is {digits(ridge)}, for weights alone "
        f"{estimator.ridge_batch:,.0f} sequences"
    )


def _step_reason(replica: Replica, batch: int) -> str:
    """The roofline of one decode step, or whose prediction it is."""
    estimator = replica.estimator
    step_s = timed(replica.decode_step_s(batch))
    if replica.step_time is not None:
        return f"decode step with {batch:,} sequences: {step_s}, by the fitted step time"
    if replica.drafting is not None:
        drafting = replica.drafting
        return f"decode step with {batch:,} sequences: {step_s} a token, drafts kept with {drafting.acceptance:.0%}"
    work = decode_work(batch, replica.load.mean_context)
    memory = (
        f"(weights {sized(estimator.weights_read(work))} + KV {sized(estimator.kv_read(work))}) / "
        f"{digits(estimator.bytes_per_s / 1e12, 4)} TB/s = {timed(estimator.memory_s(work))}"
    )
    arithmetic = (
        f"{digits(estimator.flops(work) / 1e12, 4)} TFLOP / {digits(estimator.flops_per_s / 1e12, 4)} TFLOP/s = "
        f"{timed(estimator.arithmetic_s(work))}"
    )
    return (
        f"decode step with {batch:,} sequences of {replica.load.mean_context:,.0f} tokens, efficiency "
        f"{estimator.efficiency:g}: {memory}; {arithmetic}; the longer counts"
    )


def _fleet_reasons(replica: Replica, capacity: OperatingPoint, fleet: Fleet) -> tuple[str, ...]:
    rate_per_s = replica.load.rate_per_s or 0.0
    point = fleet.point
    prefill_s, tokens_per_s = timed(replica.prefill_s), rate_per_s * replica.load.output_tokens
    planned_for = f"{digits(capacity.rate_per_s, 4)} × {replica.margins.utilization:.0%} utilization"
    step_s, tpot_s = timed(point.decode_step_s), timed(point.tpot_s)
    return (
        f"prefill of all requests: {rate_per_s:g}/s × {prefill_s} = {digits(rate_per_s * replica.prefill_s)} replicas; "
        f"decode of all: {tokens_per_s:,.0f} tokens/s",
        f"replicas: {rate_per_s:g} / ({planned_for}) → {fleet.num_replicas}, each at {fleet.utilization:.0%} of its "
        "capacity",
        f"each replica: {digits(rate_per_s / fleet.num_replicas, 4)} requests/s, prefill takes "
        f"{point.prefill_share:.0%}, TPOT = {step_s} / (1 − {point.prefill_share:.2f}) = {tpot_s} with "
        f"{point.batch:,} sequences; TTFT {timed(point.ttft_s)} (mean), {timed(point.ttft_p99_s)} (p99)",
    )
