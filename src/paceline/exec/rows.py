"""The row table: what the executor keeps of each running sequence between steps, as arrays indexed by slot.

Token histories, block tables and sampling parameters live here so that a plan need only say what is new, and a step's
input arrays are gathered, not built token by token.
"""

import numpy as np
from numpy.typing import NDArray

from paceline.core.plan import NewRow, RowStep
from paceline.core.request import SamplingParams


class RowTable:
    """`max_rows` slots of at most `max_context` tokens and `max_blocks` blocks. Only writer of its arrays."""

    def __init__(self, max_rows: int, max_context: int, max_blocks: int) -> None:
        self.histories = np.zeros((max_rows, max_context), np.int32)
        self.block_tables = np.zeros((max_rows, max_blocks), np.int32)
        self.num_known = np.zeros(max_rows, np.int32)
        self.num_prompt = np.zeros(max_rows, np.int32)
        self.temperature = np.zeros(max_rows, np.float32)
        self.top_k = np.zeros(max_rows, np.int32)
        self.top_p = np.ones(max_rows, np.float32)
        self.min_p = np.zeros(max_rows, np.float32)
        self.repetition = np.ones(max_rows, np.float32)
        self.presence = np.zeros(max_rows, np.float32)
        self.frequency = np.zeros(max_rows, np.float32)
        self.seeds = np.zeros(max_rows, np.uint64)
        self._num_blocks = [0] * max_rows
        self._sampling: list[SamplingParams] = [SamplingParams()] * max_rows

    def enter(self, new: NewRow) -> None:
        """A sequence takes slot `new.row`; whatever was there before is gone."""
        row, sampling = new.row, new.sampling
        self.histories[row, : len(new.tokens)] = new.tokens
        self.num_known[row] = len(new.tokens)
        self.num_prompt[row] = new.num_prompt_tokens
        self.block_tables[row, : len(new.blocks)] = new.blocks
        self._num_blocks[row] = len(new.blocks)
        self._sampling[row] = sampling
        self.temperature[row] = sampling.temperature
        self.top_k[row] = sampling.top_k or 0
        self.top_p[row] = sampling.top_p
        self.min_p[row] = sampling.min_p
        self.repetition[row] = sampling.repetition_penalty
        self.presence[row] = sampling.presence_penalty
        self.frequency[row] = sampling.frequency_penalty
        self.seeds[row] = sampling.seed

    def extend_blocks(self, step: RowStep) -> None:
        """Add the step's new blocks to the row's table."""
        first = self._num_blocks[step.row]
        last = first + len(step.new_blocks)
        self.block_tables[step.row, first:last] = step.new_blocks
        self._num_blocks[step.row] = last

    def append(self, rows: NDArray[np.int32], tokens: NDArray[np.int32]) -> None:
        """One sampled token for each of `rows` (distinct)."""
        self.histories[rows, self.num_known[rows]] = tokens
        self.num_known[rows] += 1

    def append_known(self, row: int, tokens: tuple[int, ...]) -> None:
        """Tokens that are known to follow in `row`, at most `room(row)`."""
        start = int(self.num_known[row])
        self.histories[row, start : start + len(tokens)] = tokens
        self.num_known[row] += len(tokens)

    def room(self, row: int) -> int:
        """How many more tokens `row` can hold."""
        return self.histories.shape[1] - int(self.num_known[row])

    def sampling(self, row: int) -> SamplingParams:
        """The parameters of the sequence in slot `row`."""
        return self._sampling[row]

    def biases(self, row: int, num_known: int) -> tuple[tuple[int, float], ...]:
        """What is added to the row's logits for the token at position `num_known`; stop tokens are forbidden before
        min_tokens.
        """
        sampling = self._sampling[row]
        if num_known - int(self.num_prompt[row]) >= sampling.min_tokens:
            return sampling.logit_bias
        return sampling.logit_bias + tuple((token, -np.inf) for token in sampling.forbidden_before_min)
