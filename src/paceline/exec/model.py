"""The model executor: runs plans on a session of a backend. Only writer of rows, grammars, block tables and KV."""

from dataclasses import replace

import numpy as np

from paceline.core.plan import RowResult, RowStep, StepPlan, StepResult, TokenLogprobs
from paceline.exec.batch import Draws, build_batch, build_sample_batch, find_draws, row_results
from paceline.exec.constraint import Constraint, Constraints
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.pooling import PooledRows, add_pooled
from paceline.exec.rows import RowTable
from paceline.ops.protocol import SampleBatch, Session


class ModelExecutor:
    """One plan at a time: enter rows, copy blocks, one forward pass, draw tokens."""

    def __init__(self, session: Session, table: RowTable, compiler: GrammarCompiler) -> None:
        self._session = session
        self._table = table
        self._constraints = Constraints(compiler, len(table.histories))
        self._pooled = PooledRows(session)

    def execute(self, plan: StepPlan) -> StepResult:
        """Run the plan to its end."""
        table = self._table
        for row in plan.freed_rows:
            self._constraints.leave(row)
        for new in plan.new_rows:
            table.enter(new)
            self._constraints.enter(new)
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
        draws = find_draws(plan.rows, batch, table, self._constraints)
        samples = build_sample_batch(draws, table, self._constraints.masks) if draws.plan_rows else None
        # All arrays are there now: compute threads that wait between layers and head for long go to sleep.
        self._session.forward(batch)
        if samples is None:
            results = tuple(RowResult(step.row) for step in plan.rows)
        else:
            results = self._draw(plan.rows, draws, samples)
        pooled = self._pooled.gather(plan.rows, batch.row_starts)
        if self._constraints:
            results = tuple(map(self._follow_grammar, plan.rows, results))
        return StepResult(add_pooled(results, pooled))

    def _draw(self, steps: tuple[RowStep, ...], draws: Draws, samples: SampleBatch) -> tuple[RowResult, ...]:
        """Draw and score; new tokens enter the row table."""
        result = self._session.sample(samples)
        is_output = samples.num_known >= samples.num_prompt
        self._table.append(samples.slots[is_output], result.tokens[is_output])
        return row_results(steps, draws, result, is_output)

    def _follow_grammar(self, step: RowStep, result: RowResult) -> RowResult:
        """The result with the tokens its grammar forces after it, and with its end if that is reached."""
        constraint = self._constraints.get(step.row)
        if constraint is None or not step.samples:
            return result
        for token in result.sampled:
            constraint.take(token.token_id)
        sampled = result.sampled + self._forced(step.row, constraint)
        return replace(result, sampled=sampled, end=constraint.end if constraint.next_forced is None else None)

    def _forced(self, row: int, constraint: Constraint) -> tuple[TokenLogprobs, ...]:
        """All forced tokens at once, unless their logprobs are wanted: those are scored one a step."""
        if self._table.sampling(row).num_logprobs is not None:
            return ()
        tokens = constraint.take_forced(self._table.room(row))
        self._table.append_known(row, tokens)
        return tuple(TokenLogprobs(token, None) for token in tokens)
