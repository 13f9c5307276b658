"""A whole question to the planner: the replica under its load, the targets, the price."""

import math
from dataclasses import dataclass

from paceline.costs.capacity import Replica
from paceline.costs.load import Targets
from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Question:
    """`price_per_gpu_hour`: of one card, in any currency; None leaves costs out."""

    replica: Replica
    targets: Targets
    price_per_gpu_hour: float | None = None

    def __post_init__(self) -> None:
        price = self.price_per_gpu_hour
        if price is not None and not (math.isfinite(price) and price > 0):
            raise ConfigError(f"price of a card and hour must be a positive number, got {price!r}")


def price_per_million_tokens(price_per_gpu_hour: float, num_cards: float, tokens_per_s: float) -> float:
    """What 10^6 output tokens cost at a throughput."""
    return price_per_gpu_hour * num_cards / (3600.0 * tokens_per_s) * 1e6
