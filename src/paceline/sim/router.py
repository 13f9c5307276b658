"""Which replica gets a request: round-robin, the least loaded, or the one that has its prefix cached.

A router knows what a router in front of real servers could know: the request and how many each replica has not
yet answered.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Protocol

from paceline.core.request import Request

FIRST_PREFIX_TOKENS = 16
MAX_PREFIXES = 2**16
# A replica may have this much more than its share before a known prefix no longer goes there.
MAX_IMBALANCE = 1.25


class Router(Protocol):
    """Chooses among replicas."""

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """The index of the replica; `loads`: requests each has not answered yet."""
        ...


class RoundRobin:
    """Each in turn."""

    def __init__(self) -> None:
        self._num_routed = 0

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """The next."""
        self._num_routed += 1
        return (self._num_routed - 1) % len(loads)


class LeastLoaded:
    """The one with the fewest unanswered requests; the first of equals."""

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """The first of the least loaded."""
        return min(range(len(loads)), key=loads.__getitem__)


class PrefixAffinity:
    """The replica that was last sent the longest known prefix, unless it has far more than its share of the load.

    Prefixes are known at lengths 16, 32, 64, … tokens and the whole prompt; the oldest are forgotten.
    """

    def __init__(self) -> None:
        self._replicas: OrderedDict[bytes, int] = OrderedDict()
        self._otherwise = LeastLoaded()

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """The replica with the prefix, or the least loaded."""
        keys = prefix_keys(request)
        most = MAX_IMBALANCE * (sum(loads) + 1) / len(loads)
        known = [self._replicas[key] for key in reversed(keys) if key in self._replicas]
        choice = next((replica for replica in known if loads[replica] < most), None)
        if choice is None:
            choice = self._otherwise.choose(request, loads)
        for key in keys:
            self._replicas[key] = choice
            self._replicas.move_to_end(key)
        while len(self._replicas) > MAX_PREFIXES:
            self._replicas.popitem(last=False)
        return choice


def prefix_keys(request: Request) -> list[bytes]:
    """Fingerprints of the prompt's beginnings, the shortest first."""
    num_tokens = len(request.prompt)
    lengths = []
    length = FIRST_PREFIX_TOKENS
    while length < num_tokens:
        lengths.append(length)
        length *= 2
    return [
        blake2b(request.prompt[:end].tobytes(), key=request.namespace[:64], digest_size=16).digest()
        for end in (*lengths, num_tokens)
    ]


class RouterKind(StrEnum):
    """The routers by name."""

    ROUND_ROBIN = "round-robin"
    LEAST_LOADED = "least-loaded"
    PREFIX = "prefix"


ROUTERS: dict[RouterKind, Callable[[], Router]] = {
    RouterKind.ROUND_ROBIN: RoundRobin,
    RouterKind.LEAST_LOADED: LeastLoaded,
    RouterKind.PREFIX: PrefixAffinity,
}
