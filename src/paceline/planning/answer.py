"""Everything `paceline plan` has to say about one question, and the same as JSON."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from paceline.costs.capacity import OperatingPoint
from paceline.costs.changes import Effect, effects
from paceline.costs.drift import Turn, turns
from paceline.costs.planner import Plan, plan
from paceline.costs.pools import Pools, plan_pools
from paceline.costs.question import Question

CURVE_POINTS = 64
LEAST_CURVE_END = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """The plan with what was asked beside it. `curve`: the replica over batches, for the plots."""

    question: Question
    plan: Plan
    effects: tuple[Effect, ...]
    has_pools: bool
    pools: Pools | None
    num_turns: int
    turns: tuple[Turn, ...]
    curve: tuple[OperatingPoint, ...]

    @property
    def at_load(self) -> OperatingPoint | None:
        """A replica as it will run: under its share of the load, or at its capacity where no rate was given."""
        return self.plan.capacity if self.plan.fleet is None else self.plan.fleet.point

    @property
    def num_cards(self) -> int:
        """Of the fleet, or of one replica where no rate was given."""
        return self.question.replica.estimator.num_cards if self.plan.fleet is None else self.plan.fleet.num_cards


def answer(question: Question, has_pools: bool, num_turns: int) -> Answer:
    """Ask the planner."""
    found = plan(question)
    point = found.capacity if found.fleet is None else found.fleet.point
    return Answer(
        question=question,
        plan=found,
        effects=effects(question, found),
        has_pools=has_pools,
        pools=plan_pools(question) if has_pools and found.refusal is None else None,
        num_turns=num_turns,
        turns=() if point is None else turns(question.replica, point.batch, num_turns),
        curve=() if point is None else curve(question),
    )


def curve(question: Question) -> tuple[OperatingPoint, ...]:
    """The replica at batches from 1 to twice the last that is of interest: the ridge's, or what memory holds."""
    replica = question.replica
    end = max(LEAST_CURVE_END, 2 * replica.memory_limit, 2 * round(replica.estimator.ridge_batch))
    batches = sorted({round(end ** (index / (CURVE_POINTS - 1))) for index in range(CURVE_POINTS)})
    return tuple(replica.at_batch(batch) for batch in batches)


def as_json(found: Answer) -> Mapping[str, object]:
    """The answer as plain values; times in seconds, sizes in bytes."""
    estimator, load = found.question.replica.estimator, found.question.replica.load
    memory = found.plan.memory
    return {
        "model": asdict(estimator.model) | {"windows": list(estimator.model.windows)},
        "hardware": asdict(estimator.hardware),
        "cards_per_replica": estimator.num_cards,
        "weights": asdict(estimator.weights),
        "kv": asdict(estimator.kv),
        "efficiency": estimator.efficiency,
        "costs": "datasheet" if found.question.replica.step_time is None else "fitted",
        "load": asdict(load),
        "targets": asdict(found.question.targets),
        "ridge_batch": estimator.ridge_batch,
        "memory": asdict(memory) | {"kv_bytes": memory.kv_bytes, "num_sequences": memory.num_sequences},
        "plan": {name: value for name, value in asdict(found.plan).items() if name != "memory"},
        "effects": [asdict(effect) for effect in found.effects],
        "pools": None if found.pools is None else asdict(found.pools),
        "turns": [asdict(turn) for turn in found.turns],
        "curve": [asdict(point) for point in found.curve],
    }
