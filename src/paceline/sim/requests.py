"""From items of a workload to requests of the scheduler: which tokens a prompt holds, and how the answer may end.

Equal segments are equal tokens, so the prefix cache finds what the workload says is shared. The answers of a simulation
are FILLER tokens, and a later turn that replays one replays those.
"""

from array import array
from dataclasses import dataclass
from hashlib import shake_128
from typing import Protocol

from paceline.core.request import SEED_MASK, Request, RequestId, SamplingParams, StopRule
from paceline.sim.executor import FILLER_TOKEN, STOP_TOKEN
from paceline.workload.item import Segment, WorkItem
from paceline.workload.segments import answered_index

TOKEN_BYTES = array("i").itemsize


class Requests(Protocol):
    """Makes the request that an item stands for."""

    def request(self, request_id: RequestId, item: WorkItem, arrival_s: float) -> Request:
        """The request that asks for `item`."""
        ...


def seeded(seed: int, index: int) -> SamplingParams:
    """How request `index` is sampled: simulated answers have no text, but whether a draft is kept is drawn."""
    return SamplingParams(temperature=0.0, seed=(seed << 32) + index & SEED_MASK)


@dataclass(frozen=True, slots=True)
class RequestMaker:
    """`max_tokens`: what clients ask for, at least the drawn length; the answer then ends by a stop token. None: they
    ask for exactly the drawn length, as `bench` does.
    """

    seed: int = 0
    max_tokens: int | None = None

    def request(self, request_id: RequestId, item: WorkItem, arrival_s: float) -> Request:
        """The request that asks for `item`."""
        prompt = array("i")
        for segment in item.prompt:
            prompt.extend(self.segment(segment))
        return Request(
            request_id, prompt, self._stop(item.output_tokens), seeded(self.seed, item.index), arrival_s=arrival_s
        )

    def segment(self, segment: Segment) -> "array[int]":
        """The tokens of a segment."""
        if answered_index(segment) is not None:
            return array("i", [FILLER_TOKEN]) * segment.num_tokens
        seed = b"%d/%d" % (self.seed, segment.segment_id)
        tokens = array("i")
        tokens.frombytes(shake_128(seed).digest(TOKEN_BYTES * segment.num_tokens))
        return tokens

    def _stop(self, output_tokens: int) -> StopRule:
        if self.max_tokens is None:
            return StopRule(output_tokens)
        return StopRule(max(self.max_tokens, output_tokens), stop_token_ids=frozenset((STOP_TOKEN,)))
