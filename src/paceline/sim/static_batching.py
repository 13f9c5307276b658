"""Static batching, for comparison: a batch is taken, prefilled together and run until its longest answer is done.

Behind the scheduler's interface, so that the same loop and executor run it. It stands for servers without a KV manager:
each slot owns the longest context's memory, so the pool and its size play no part. A row whose answer has ended
goes on decoding for nothing until the batch is over: that padding is in its plans, and costs what decoding costs.
"""

from collections import deque
from dataclasses import dataclass

from paceline.core.output import SequenceOutput
from paceline.core.plan import NewRow, RowStep, StepPlan, StepResult
from paceline.core.request import Request, SequenceId, token_array
from paceline.core.sequence import Sequence


@dataclass(slots=True)
class Slot:
    """A row of the batch: its sequence, when it was admitted, and where its padding has got to."""

    sequence: Sequence
    admitted_s: float
    position: int


class StaticScheduler:
    """Batches of at most `max_num_seqs` requests, in order of arrival. One choice a request."""

    def __init__(self, max_num_seqs: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._waiting: deque[Request] = deque()
        self._batch: list[Slot] = []
        self._num_freed = 0
        self._num_sequences = 0
        self._step_index = 0

    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._batch) or bool(self._waiting)

    def submit(self, request: Request) -> None:
        """Queue a request for a later batch."""
        assert request.num_sequences == 1, "static batching serves one choice a request"
        self._waiting.append(request)

    def schedule(self, now_s: float = 0.0) -> StepPlan | None:
        """The next step: a new batch's prompts, or a token for each row of the one that runs."""
        if not self.has_work():
            return None
        self._step_index += 1
        if self._batch:
            rows = tuple(self._decode(row, slot) for row, slot in enumerate(self._batch))
            return StepPlan(self._step_index, (), (), (), rows)
        freed, self._num_freed = tuple(range(self._num_freed)), 0
        new_rows = tuple(self._take(row, now_s) for row in range(min(self._max_num_seqs, len(self._waiting))))
        rows = tuple(RowStep(new.row, 0, new.num_prompt_tokens, (), samples=True) for new in new_rows)
        return StepPlan(self._step_index, freed, new_rows, (), rows)

    def update(self, plan: StepPlan, result: StepResult) -> list[SequenceOutput]:
        """Append tokens; the batch leaves when its last sequence has ended."""
        outputs = []
        for row_result in result.rows:
            slot = self._batch[row_result.row]
            sequence = slot.sequence
            if sequence.finish_reason is not None:
                continue
            sequence.tokens.extend(token.token_id for token in row_result.sampled)
            sequence.finish_reason = row_result.end or sequence.stop_reason()
            outputs.append(
                SequenceOutput(
                    sequence.request.request_id, 0, row_result.sampled, (), sequence.finish_reason, 0, slot.admitted_s
                )
            )
        if all(slot.sequence.finish_reason is not None for slot in self._batch):
            self._num_freed, self._batch = len(self._batch), []
        return outputs

    def _take(self, row: int, now_s: float) -> NewRow:
        request = self._waiting.popleft()
        self._num_sequences += 1
        sequence = Sequence(SequenceId(self._num_sequences), request, 0, request.sampling, token_array(request.prompt))
        self._batch.append(Slot(sequence, now_s, sequence.num_prompt))
        return NewRow(row, sequence.sequence_id, token_array(request.prompt), sequence.num_prompt, request.sampling, ())

    def _decode(self, row: int, slot: Slot) -> RowStep:
        start = slot.position
        slot.position += 1
        return RowStep(row, start, 1, (), samples=slot.sequence.finish_reason is None)
