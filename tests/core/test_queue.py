"""The waiting queue against a sorted list."""

import hypothesis.strategies as st
from core_world import Ask
from hypothesis import given

from paceline.core.queue import WaitingQueue
from paceline.core.request import SequenceId
from paceline.core.sequence import Sequence


def _sequence(number: int, priority: int, arrival_s: float) -> Sequence:
    request = Ask(priority=priority).request(number, arrival_s)
    return Sequence(SequenceId(number), request, 0, request.sampling, request.prompt)


@given(
    moves=st.lists(
        st.one_of(
            st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 3)),
            st.tuples(st.sampled_from(("remove", "pop", "repush")), st.integers(0, 99), st.just(0)),
        ),
        max_size=60,
    )
)
def test_first_in_line_is_by_priority_then_arrival_then_number(moves: list[tuple[str, int, int]]) -> None:
    queue, line, gone = WaitingQueue(), list[Sequence](), list[Sequence]()
    for number, (move, first, second) in enumerate(moves):
        if move == "push":
            line.append(_sequence(number, first, float(second)))
            queue.push(line[-1])
        elif move == "repush" and gone:
            line.append(gone.pop(first % len(gone)))
            queue.push(line[-1])
        elif move in ("pop", "remove") and line:
            left = line.pop(0 if move == "pop" else first % len(line))
            gone.append(left)
            queue.remove(left)
        line.sort(key=lambda sequence: sequence.queue_key)
        assert queue.peek() is (line[0] if line else None)
        assert len(queue) == len(line)


def test_sequences_that_left_the_middle_of_the_line_are_let_go() -> None:
    queue = WaitingQueue()
    queue.push(_sequence(0, 0, 0.0))
    for number in range(1, 10_000):
        sequence = _sequence(number, 1, 0.0)
        queue.push(sequence)
        queue.remove(sequence)
    assert len(queue) == 1
    assert len(queue._heap) < 200, "cancelled sequences pile up behind the first in line"
