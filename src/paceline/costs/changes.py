"""What to change next: each change tried by planning again, and compared by what a card then serves.

Cards alone would hide an improvement behind the rounding to whole replicas, so changes are ranked by requests/s a card
inside the targets. Each stands alone; a change that alters answers says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paceline.costs.capacity import Drafting
from paceline.costs.estimator import MAX_CARDS
from paceline.costs.formats import KV_FORMATS, WEIGHT_FORMATS
from paceline.costs.planner import Plan, plan
from paceline.costs.question import Question

ASSUMED_DRAFTING = Drafting(acceptance=0.7, draft_cost=0.1)
ASSUMED_CACHED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Effect:
    """A change and its plan. `gain`: requests/s a card against before; None where before nothing could be served."""

    change: str
    rate_per_card_s: float
    gain: float | None
    num_cards: int | None
    tpot_s: float
    price_per_million_tokens: float | None


def effects(question: Question, before: Plan) -> tuple[Effect, ...]:
    """What each change would bring, the best first; those that still serve nothing are left out."""
    rate_before = rate_per_card_s(question, before)
    found = [
        _effect(change, changed, answer, rate_before)
        for change, changed in changes(question)
        if (answer := plan(changed)).capacity is not None
    ]
    return tuple(sorted(found, key=lambda effect: -effect.rate_per_card_s))


def rate_per_card_s(question: Question, answer: Plan) -> float | None:
    """Requests/s that a card serves inside the targets; None when none can be."""
    capacity = answer.capacity
    return None if capacity is None else capacity.rate_per_s / question.replica.estimator.num_cards


def changes(question: Question) -> Iterator[tuple[str, Question]]:
    """(what, the question with it). Formats only where they make things smaller; steps that were measured say nothing
    of other formats and other cards.
    """
    replica, load = question.replica, question.replica.load
    if replica.step_time is None:
        yield from _of_hardware(question)
    if load.input_tokens > 1:
        shorter = replace(load, input_tokens=load.input_tokens // 2)
        yield (
            f"prompts of {shorter.input_tokens:,} tokens instead of {load.input_tokens:,}",
            _with(question, load=shorter),
        )
    if load.cached_share < ASSUMED_CACHED_SHARE:
        shared = replace(load, cached_share=ASSUMED_CACHED_SHARE)
        yield f"{ASSUMED_CACHED_SHARE:.0%} of each prompt in the prefix cache", _with(question, load=shared)
    if replica.drafting is None:
        drafted = ASSUMED_DRAFTING
        name = f"speculation (α {drafted.acceptance:g}, draft cost {drafted.draft_cost:g})"
        yield name, _with(question, drafting=drafted)


def _of_hardware(question: Question) -> Iterator[tuple[str, Question]]:
    estimator = question.replica.estimator
    for name in ("fp8", "int4"):
        smaller = WEIGHT_FORMATS[name]
        if smaller.bytes_per_number < estimator.weights.bytes_per_number:
            changed = replace(estimator, weights=smaller)
            yield f"weights in {name}, where its loss is bearable", _with(question, estimator=changed)
    if estimator.kv.bytes_per_number > KV_FORMATS["fp8"].bytes_per_number:
        changed = replace(estimator, kv=KV_FORMATS["fp8"])
        yield "KV in fp8, where its loss is bearable", _with(question, estimator=changed)
    for num_cards in (2 * estimator.num_cards, estimator.num_cards // 2):
        if 1 <= num_cards <= MAX_CARDS:
            changed = replace(estimator, num_cards=num_cards)
            yield f"{num_cards} cards a replica instead of {estimator.num_cards}", _with(question, estimator=changed)


def _with(question: Question, **changed: object) -> Question:
    return replace(question, replica=replace(question.replica, **changed))  # type: ignore[arg-type]  # fields by name


def _effect(change: str, question: Question, answer: Plan, rate_before: float | None) -> Effect:
    capacity, fleet = answer.capacity, answer.fleet
    assert capacity is not None, "only plans that serve something have an effect"
    rate = capacity.rate_per_s / question.replica.estimator.num_cards
    return Effect(
        change=change,
        rate_per_card_s=rate,
        gain=None if rate_before is None else rate / rate_before,
        num_cards=None if fleet is None else fleet.num_cards,
        tpot_s=capacity.tpot_s if fleet is None else fleet.point.tpot_s,
        price_per_million_tokens=answer.price_per_million_tokens if fleet is None else fleet.price_per_million_tokens,
    )
