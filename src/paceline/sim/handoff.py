"""Prefill and decode in pools of their own: a prompt is computed in one, its KV travels, the answer comes from another.

The first token is sampled where the prompt was computed and reaches the client with the KV, as in the planner. A
prefill replica sends one prompt at a time. What arrives enters the decode replica's prefix cache through its KV
manager, so the scheduler there finds all but one token computed; where there was no room it computes the prompt again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.core.kv import KvManager
from paceline.core.request import Request, SequenceId, StopRule, token_array
from paceline.core.scheduler import Scheduler
from paceline.sim.executor import FILLER_TOKEN
from paceline.sim.replica import Replica


@dataclass(frozen=True, slots=True)
class Link:
    """What carries KV from one replica to another."""

    bytes_per_s: float
    kv_bytes_per_token: float

    def seconds(self, num_tokens: int) -> float:
        """For one prompt."""
        return num_tokens * self.kv_bytes_per_token / self.bytes_per_s


class Handoff:
    """The decode pool and the links into it, one for each of `num_senders` prefill replicas."""

    def __init__(self, replicas: Sequence[Replica], link: Link, num_senders: int) -> None:
        self.replicas = replicas
        self._link = link
        self._free_s = [0.0] * num_senders

    def prefill_part(self, request: Request) -> Request:
        """What the prefill pool is asked: the first token. Raises ContextLengthError for what can't be decoded."""
        scheduler = self.replicas[0].scheduler
        assert isinstance(scheduler, Scheduler), "pools are made of the engine's schedulers"
        scheduler.check_feasible(request)
        return replace(request, stop=StopRule(1))

    def arrives_s(self, sender: int, request: Request, now_s: float) -> float:
        """When the KV of a prompt, computed now, will be there."""
        starts_s = max(now_s, self._free_s[sender])
        self._free_s[sender] = starts_s + self._link.seconds(len(request.prompt))
        return self._free_s[sender]

    def submit(self, request: Request, output_tokens: int) -> tuple[Replica, SequenceId]:
        """The KV is there, and the first token: the least loaded replica goes on."""
        receiver = min(self.replicas, key=lambda replica: replica.num_unanswered)
        scheduler = receiver.scheduler
        assert isinstance(scheduler, Scheduler), "pools are made of the engine's schedulers"
        receive(scheduler.kv, request)
        rest = replace(
            request,
            prompt=request.prompt + token_array([FILLER_TOKEN]),
            stop=replace(request.stop, max_tokens=request.stop.max_tokens - 1),
        )
        return receiver, receiver.submit(rest, output_tokens - 1)


def receive(kv: KvManager, request: Request) -> None:
    """Enter a prompt's KV into a prefix cache, if blocks for it can be had."""
    num_tokens = len(request.prompt)
    lease = kv.open(kv.match(request.namespace, request.prompt, num_tokens)).lease
    num_computed = num_tokens if kv.grow(lease, num_tokens) is not None else lease.num_published * kv.block_size
    kv.close(lease, request.prompt, num_computed)
