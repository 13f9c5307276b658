"""One request of a workload, as the load generator sends it and the simulator costs it.

A prompt is a run of segments. A segment is a number and a length: the same number always means the same tokens, so
sharing is visible without any text (a system prompt is one segment of many items), and unique prompts are segments
nobody else has. What tokens a segment holds is decided by whoever sends it (`segment_tokens`).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Segment:
    """`num_tokens` tokens that depend on `segment_id` and the workload's seed alone."""

    segment_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A request. `arrival_s`: when it is meant to be sent, from the start; None: when the loop has room (closed loop).

    A session's turns share `session_id` and follow one another directly; turn k is sent `think_s` after turn k-1 was
    answered (arrival_s is the session's and counts for turn 0 only). `output_tokens` is the exact length to ask for.
    """

    index: int
    arrival_s: float | None
    prompt: tuple[Segment, ...]
    output_tokens: int
    session_id: int | None = None
    turn: int = 0
    think_s: float = 0.0

    @property
    def prompt_tokens(self) -> int:
        """Length of the whole prompt."""
        return sum(segment.num_tokens for segment in self.prompt)


Session = tuple[WorkItem, ...]


def sessions(items: Iterable[WorkItem]) -> Iterator[Session]:
    """Neighbouring items of one session together, single requests alone."""
    for key, group in groupby(items, key=lambda item: item.session_id):
        if key is None:
            yield from ((item,) for item in group)
        else:
            yield tuple(group)


def segment_tokens(segment: Segment, seed: int, vocab_size: int) -> list[int]:
    """Token ids in [0, vocab_size), the same for the same (segment_id, seed); a longer segment begins as a shorter
    one.
    """
    ids: list[int] = []
    counter = 0
    while len(ids) < segment.num_tokens:
        digest = blake2b(f"{seed}/{segment.segment_id}/{counter}".encode(), digest_size=64).digest()
        ids += [int.from_bytes(digest[at : at + 4], "little") % vocab_size for at in range(0, 64, 4)]
        counter += 1
    return ids[: segment.num_tokens]
