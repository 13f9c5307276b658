"""Numbers and words of segments.

A segment's number says what it is, so that parts written by different people never meet: shared parts, blocks of a
trace, an item's own new tokens, and an item's answer as later turns replay it. Whoever sends items may put the text
the server really answered in place of `answer_segment(item)`.
"""

from collections.abc import Iterator
from hashlib import blake2b

from paceline.workload.item import Segment
from paceline.workload.words import WORDS

_NEW, _ANSWER, _SHARED, _BLOCK, _NUM_KINDS = range(5)


def new_segment(index: int, num_tokens: int) -> Segment:
    """Tokens only item `index` asks first: unique, unless a later turn of its session replays them."""
    return Segment(index * _NUM_KINDS + _NEW, num_tokens)


def answer_segment(index: int, num_tokens: int) -> Segment:
    """Stand-in for what was answered to item `index`, part of the prompts of later turns."""
    return Segment(index * _NUM_KINDS + _ANSWER, num_tokens)


def shared_segment(number: int, num_tokens: int) -> Segment:
    """Shared part `number` of the workload: a system prompt, an example, a document."""
    return Segment(number * _NUM_KINDS + _SHARED, num_tokens)


def block_segment(block_id: int, num_tokens: int) -> Segment:
    """Block `block_id` of a trace that names its blocks."""
    return Segment(block_id * _NUM_KINDS + _BLOCK, num_tokens)


def answered_index(segment: Segment) -> int | None:
    """The item whose answer this segment stands for; None for every other segment."""
    index, kind = divmod(segment.segment_id, _NUM_KINDS)
    return index if kind == _ANSWER else None


def segment_words(segment: Segment, seed: int) -> Iterator[str]:
    """Common English words without end, the same for the same (segment_id, seed).

    For servers that take only text: whoever sends it takes as many words as make `num_tokens` for that server.
    """
    counter = 0
    while True:
        digest = blake2b(f"{seed}/{segment.segment_id}/words/{counter}".encode(), digest_size=64).digest()
        yield from (WORDS[byte] for byte in digest)
        counter += 1
