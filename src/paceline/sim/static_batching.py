"""Static batching, for comparison: a batch is taken, prefilled together and run until its longest answer is done.

Behind the scheduler's interface, so that the same loop runs it on any executor, the real model's too. It stands for
servers without a KV manager: each row owns the memory of the longest context. A row whose answer has ended goes on
decoding its last token until the batch is over, logits and all: that padding is in its plans and costs what decoding
costs; what is sampled of it is dropped.
"""

from collections import deque
from dataclasses import dataclass

from paceline.core.output import SequenceOutput
from paceline.core.plan import NewRow, RowStep, StepPlan, StepResult
from paceline.core.request import BlockId, Request, SequenceId, token_array
from paceline.core.sequence import Sequence


@dataclass(slots=True)
class Slot:
    """A row of the batch: its sequence, and when it was admitted."""

    sequence: Sequence
    admitted_s: float


class StaticScheduler:
    """Batches of at most `max_num_seqs` requests, in order of arrival, one choice each. `blocks_per_row`: KV blocks
    that each row owns, where the executor has a KV store.
    """

    def __init__(self, max_num_seqs: int, blocks_per_row: int = 0) -> None:
        self._max_num_seqs = max_num_seqs
        self._blocks_per_row = blocks_per_row
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
        self._batch.append(Slot(sequence, now_s))
        first = row * self._blocks_per_row
        blocks = tuple(BlockId(block) for block in range(first, first + self._blocks_per_row))
        return NewRow(
            row, sequence.sequence_id, token_array(request.prompt), sequence.num_prompt, request.sampling, blocks
        )

    def _decode(self, row: int, slot: Slot) -> RowStep:
        sequence = slot.sequence
        return RowStep(row, len(sequence.tokens) - 1, 1, (), samples=True)
