"""Pooled rows: what the hidden states of a row's tokens come to, gathered over the steps that compute them.

A mean is summed token by token in float64, in the order of the positions, so its bits depend neither on the chunks nor
on the batch they came in. A row that was preempted enters again with its first token: its sum starts anew.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paceline.core.plan import NewRow, RowResult, RowStep
from paceline.core.request import Pooling
from paceline.ops.protocol import Int32Array, Session


@dataclass(slots=True)
class PooledRow:
    """One row on its way: its kind, its length, and the sum [D] of the hidden states so far (0 before the first)."""

    pooling: Pooling
    num_tokens: int
    total: "NDArray[np.float64] | float" = 0.0


class PooledRows:
    """The pooled rows of an executor. Only writer of their sums."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._rows: dict[int, PooledRow] = {}

    def enter(self, new: NewRow) -> None:
        """A sequence takes slot `new.row`, pooled or not; whatever was there before is gone."""
        self._rows.pop(new.row, None)
        if new.pooling is not None:
            self._rows[new.row] = PooledRow(new.pooling, len(new.tokens))

    def gather(self, steps: tuple[RowStep, ...], row_starts: Int32Array) -> dict[int, bytes]:
        """Take in the last forward; the result of each row it completed, by slot, as float32 [D]."""
        if not self._rows:
            return {}
        results = {}
        for step, first in zip(steps, row_starts.tolist(), strict=False):
            row = self._rows.get(step.row)
            if row is not None:
                is_complete = step.start + step.num_tokens == row.num_tokens
                if is_complete or row.pooling is Pooling.MEAN:
                    self._take(row, first, step.num_tokens)
                if is_complete:
                    results[step.row] = _result(self._rows.pop(step.row))
        return results

    def _take(self, row: PooledRow, first: int, num_tokens: int) -> None:
        """Add the row's tokens [first, first + num_tokens) of the step; of a LAST row only the last one."""
        start = first if row.pooling is Pooling.MEAN else first + num_tokens - 1
        token_rows = np.arange(start, first + num_tokens, dtype=np.int32)
        for hidden in self._session.hidden(token_rows):
            row.total = row.total + hidden.astype(np.float64)


def add_pooled(results: tuple[RowResult, ...], pooled: dict[int, bytes]) -> tuple[RowResult, ...]:
    """The results with those of the pooled rows in place."""
    if not pooled:
        return results
    return tuple(replace(result, pooled=pooled.get(result.row)) for result in results)


def _result(row: PooledRow) -> bytes:
    count = row.num_tokens if row.pooling is Pooling.MEAN else 1
    return np.asarray(row.total / count, np.float32).tobytes()
