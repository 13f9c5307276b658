"""What a simulated replica schedules by: the engine's scheduler with its knobs as data, or static batching.

`continuous` is the engine's scheduler with a budget no step exhausts: whole prompts. `chunked` bounds the tokens of a
step, as the engine does. `reserve-max` is chunked, but admits by max_tokens. Only `static` is another scheduler.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from paceline.core.kv import KvManager
from paceline.core.loop import StepScheduler
from paceline.core.policy import ChunkOrder, LearnedReserve, Reserve, first_come_key, service_key
from paceline.core.request import Request
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.errors import ConfigError
from paceline.sim.reserve_max import ReserveMax
from paceline.sim.static_batching import StaticScheduler

# More tokens than all contexts of a batch together: no step exhausts it.
WHOLE_PROMPTS = 2**40
MAX_BATCH = 2**16
MAX_TOKENS = 2**40


class PolicyKind(StrEnum):
    """The policies by name."""

    CONTINUOUS = "continuous"
    CHUNKED = "chunked"
    STATIC = "static"
    RESERVE_MAX = "reserve-max"


class Order(StrEnum):
    """The orders of prefill chunks by name."""

    SHORTEST = "shortest"
    FIRST_COME = "first-come"


ORDERS: dict[Order, ChunkOrder] = {Order.SHORTEST: service_key, Order.FIRST_COME: first_come_key}


@dataclass(frozen=True, slots=True)
class Policy:
    """How one replica serves. `batch`: sequences that run at once; `chunk`: tokens a step may compute, unless whole
    prompts are; `pool_tokens`: tokens its KV pool holds; `max_context`: the model's.
    """

    kind: PolicyKind = PolicyKind.CHUNKED
    batch: int = 64
    chunk: int = 512
    order: Order = Order.SHORTEST
    pool_tokens: int = 2**20
    block_size: int = 16
    max_context: int = 2**20

    def __post_init__(self) -> None:
        """Check every value. Raises ConfigError."""
        for name, value, most in (
            ("--batch", self.batch, MAX_BATCH),
            ("--chunk", self.chunk, MAX_TOKENS),
            ("--pool", self.pool_tokens, MAX_TOKENS),
            ("--block-size", self.block_size, 2**12),
            ("--max-model-len", self.max_context, MAX_TOKENS),
        ):
            if not 1 <= value <= most:
                raise ConfigError(f"{name} must be between 1 and {most}, got {value}")
        if self.pool_tokens < self.block_size:
            raise ConfigError(f"--pool {self.pool_tokens} tokens holds no block of {self.block_size}")


class SimScheduler(StepScheduler, Protocol):
    """What a replica asks of its scheduler."""

    def submit(self, request: Request) -> None:
        """Queue a request. Raises ContextLengthError when it can never be served."""
        ...

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        ...


def make_scheduler(policy: Policy) -> SimScheduler:
    """A fresh scheduler with an empty pool."""
    if policy.kind is PolicyKind.STATIC:
        return StaticScheduler(policy.batch)
    reserve: Reserve = LearnedReserve(policy.block_size)
    if policy.kind is PolicyKind.RESERVE_MAX:
        reserve = ReserveMax(policy.block_size)
    budget = WHOLE_PROMPTS if policy.kind is PolicyKind.CONTINUOUS else policy.chunk
    return Scheduler(
        SchedulerLimits(policy.batch, budget, policy.max_context),
        KvManager(policy.pool_tokens // policy.block_size, policy.block_size),
        reserve,
        ORDERS[policy.order],
    )
