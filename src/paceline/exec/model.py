"""The model executor: runs plans on a session of a backend. Only writer of rows, block tables and KV."""

import numpy as np

from paceline.core.plan import RowResult, StepPlan, StepResult
from paceline.exec.batch import build_batch, build_sample_batch, find_draws, row_results
from paceline.exec.pooling import PooledRows, add_pooled
from paceline.exec.rows import RowTable
from paceline.ops.protocol import Session


class ModelExecutor:
    """One plan at a time: enter rows, copy blocks, one forward pass, draw tokens."""

    def __init__(self, session: Session, table: RowTable) -> None:
        self._session = session
        self._table = table
        self._pooled = PooledRows(session)

    def execute(self, plan: StepPlan) -> StepResult:
        """Run the plan to its end."""
        table = self._table
        for new in plan.new_rows:
            table.enter(new)
            self._pooled.enter(new)
        if plan.copies:
            copies = [(copy.source, copy.target, copy.num_tokens) for copy in plan.copies]
            self._session.copy_blocks(np.array(copies, np.int32))
        for step in plan.rows:
            if step.new_blocks:
                table.extend_blocks(step)
        if not plan.rows:
            return StepResult(())
        batch = build_batch(plan.rows, table)
        self._session.forward(batch)
        pooled = self._pooled.gather(plan.rows, batch.row_starts)
        draws = find_draws(plan.rows, batch, table)
        if not draws.plan_rows:
            return StepResult(add_pooled(tuple(RowResult(step.row, None) for step in plan.rows), pooled))
        samples = build_sample_batch(draws, table)
        result = self._session.sample(samples)
        is_draw = samples.targets < 0
        table.append(samples.slots[is_draw], result.tokens[is_draw])
        return StepResult(add_pooled(row_results(plan.rows, draws, result), pooled))
