"""Prefixes being computed right now, so that identical prompts which arrive together are computed once.

A running sequence with a prompt to compute is a *leader*, as long as its blocks enter the tree. A waiting sequence that
shares more whole blocks with a leader than the cache already has *follows* it: it leaves the queue until the leader has
computed what both share, or leads no more. Leaders are found by their first block; prompts shorter than a block aren't
worth waiting for.
"""

from paceline.core.radix import common_tokens
from paceline.core.request import SequenceId
from paceline.core.sequence import Sequence


class PendingPrefixes:
    """Leaders by namespace and first block."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._leaders: dict[tuple[bytes, bytes], dict[SequenceId, Sequence]] = {}

    def lead(self, sequence: Sequence) -> None:
        """A sequence starts to compute its tokens."""
        if len(sequence.tokens) > self._block_size:
            self._leaders.setdefault(self._key(sequence), {})[sequence.sequence_id] = sequence
            sequence.is_leading = True

    def find(self, sequence: Sequence, num_matched: int) -> tuple[Sequence, int] | None:
        """A leader that will publish more than the `num_matched` tokens the cache has, and how many tokens of it to
        wait for.
        """
        leaders = self._leaders.get(self._key(sequence))
        if not leaders:
            return None
        wanted = sequence.tokens[: sequence.match_limit].tobytes()
        for leader in leaders.values():
            shared = common_tokens(wanted, leader.tokens.tobytes())
            whole = shared - shared % self._block_size
            if whole > num_matched:
                return leader, whole
        return None

    def release(self, leader: Sequence, num_computed: int | None) -> list[Sequence]:
        """Followers that have what they waited for; all of them, and the leader leads no more, when `num_computed` is
        None.
        """
        if num_computed is None and leader.is_leading:
            self._forget(leader)
        released, kept = [], []
        for entry in leader.followers:
            if num_computed is None or entry[0] <= num_computed:
                released.append(entry[1])
            else:
                kept.append(entry)
        leader.followers[:] = kept
        return released

    def _forget(self, leader: Sequence) -> None:
        key = self._key(leader)
        leader.is_leading = False
        del self._leaders[key][leader.sequence_id]
        if not self._leaders[key]:
            del self._leaders[key]

    def _key(self, sequence: Sequence) -> tuple[bytes, bytes]:
        return sequence.request.namespace, sequence.tokens[: self._block_size].tobytes()
