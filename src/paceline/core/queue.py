"""The waiting queue: sequences by priority, arrival and number, with removal from the middle.

A heap whose removed entries are skipped when they surface, and swept when they outnumber the members (low priorities
may never surface), so every call is O(log n) amortised, with 10,000 waiting too.
"""

from heapq import heapify, heappop, heappush

from paceline.core.request import SequenceId
from paceline.core.sequence import Sequence


class WaitingQueue:
    """Sequences that wait for admission. A sequence is in it at most once."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, float, int], int, Sequence]] = []
        self._num_pushed = 0
        self._members: set[SequenceId] = set()

    def __len__(self) -> int:
        return len(self._members)

    def push(self, sequence: Sequence) -> None:
        """Queue at the place its request's priority and arrival give it."""
        assert sequence.sequence_id not in self._members, "a sequence waits twice"
        self._members.add(sequence.sequence_id)
        self._num_pushed += 1
        heappush(self._heap, (sequence.queue_key, self._num_pushed, sequence))

    def peek(self) -> Sequence | None:
        """The first in line."""
        while self._heap and self._heap[0][2].sequence_id not in self._members:
            heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        self._members.discard(sequence.sequence_id)
        if len(self._heap) > 2 * len(self._members) + 64:
            self._heap = [entry for entry in self._heap if entry[2].sequence_id in self._members]
            heapify(self._heap)
        self.peek()
