"""From a plan to the arrays of a step, and from sampled arrays to row results. No state of its own."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.core.plan import RowResult, RowStep, TokenLogprobs
from paceline.exec.constraint import Constraints, Masks
from paceline.exec.rows import RowTable
from paceline.ops.protocol import Batch, SampleBatch, SampleResult

Int32Array = NDArray[np.int32]


def build_batch(steps: tuple[RowStep, ...], table: RowTable) -> Batch:
    """The tokens, positions and rows of a step, gathered from the row table."""
    slots = np.array([step.row for step in steps], np.int32)
    starts = np.array([step.start for step in steps], np.int32)
    counts = np.array([step.num_tokens for step in steps], np.int32)
    row_starts = np.zeros(len(steps) + 1, np.int32)
    np.cumsum(counts, out=row_starts[1:])
    positions = np.arange(row_starts[-1], dtype=np.int32) + np.repeat(starts - row_starts[:-1], counts)
    tokens = table.histories[np.repeat(slots, counts), positions]
    return Batch(tokens, positions, row_starts, slots, table.block_tables)


@dataclass(frozen=True, slots=True)
class Draws:
    """Which logits a step needs. Entry i is a draw (target -1, under mask `mask_rows[i]` unless that is -1) or the
    scoring of a token that is known: one of the prompt, or one that a grammar forces. For plan row `plan_rows[i]`.
    """

    plan_rows: list[int]
    token_rows: list[int]
    slots: list[int]
    targets: list[int]
    num_known: list[int]
    num_top: list[int]
    mask_rows: list[int]

    def add(self, entry: tuple[int, int, int, int, int, int, int]) -> None:
        """(plan row, token row, slot, target, tokens known before, alternatives wanted, mask)."""
        for column, value in zip(
            (self.plan_rows, self.token_rows, self.slots, self.targets, self.num_known, self.num_top, self.mask_rows),
            entry,
            strict=True,
        ):
            column.append(value)


def find_draws(steps: tuple[RowStep, ...], batch: Batch, table: RowTable, constraints: Constraints) -> Draws:
    """Prompt positions to score, then the token to draw, row by row. Fills the masks of rows with a grammar."""
    draws = Draws([], [], [], [], [], [], [])
    constraints.begin_step()
    first_rows = batch.row_starts.tolist()
    for index, step in enumerate(steps):
        end = step.start + step.num_tokens
        sampling = table.sampling(step.row)
        if step.score_start is not None:
            num_top = sampling.num_prompt_logprobs or 0
            for position in range(step.score_start, min(end, int(table.num_prompt[step.row]) - 1) + 1):
                token_row = first_rows[index] + position - 1 - step.start
                target = int(table.histories[step.row, position])
                draws.add((index, token_row, step.row, target, position, num_top, -1))
        choice = choose_from(step, table, constraints) if step.samples else None
        if choice is not None:
            target, mask_row = choice
            token_row = first_rows[index + 1] - 1
            draws.add((index, token_row, step.row, target, end, sampling.num_logprobs or 0, mask_row))
    return draws


def choose_from(step: RowStep, table: RowTable, constraints: Constraints) -> tuple[int, int] | None:
    """What the row's next token is drawn from: (target, mask), each -1 for none. None when no logits are needed: the
    token is forced and nobody asked for its logprob, or the row's grammar has given out.
    """
    constraint = constraints.get(step.row)
    if constraint is None:
        return -1, -1
    forced = constraint.next_forced
    if forced is not None:
        return None if table.sampling(step.row).num_logprobs is None else (forced, -1)
    mask_row = None if constraint.end is not None else constraints.fill(constraint)
    return None if mask_row is None else (-1, mask_row)


def build_sample_batch(draws: Draws, table: RowTable, masks: Masks) -> SampleBatch:
    """The sampler's arrays for the draws, which refer to `masks`."""
    slots = np.array(draws.slots, np.int32)
    ids: list[int] = []
    values: list[float] = []
    bias_starts = [0]
    for slot, num_known, target in zip(draws.slots, draws.num_known, draws.targets, strict=True):
        for token, bias in table.biases(slot, num_known) if target < 0 else ():
            ids.append(token)
            values.append(bias)
        bias_starts.append(len(ids))
    return SampleBatch(
        token_rows=np.array(draws.token_rows, np.int32),
        targets=np.array(draws.targets, np.int32),
        slots=slots,
        num_known=np.array(draws.num_known, np.int32),
        num_prompt=table.num_prompt[slots],
        temperature=table.temperature[slots],
        top_k=table.top_k[slots],
        top_p=table.top_p[slots],
        min_p=table.min_p[slots],
        repetition=table.repetition[slots],
        presence=table.presence[slots],
        frequency=table.frequency[slots],
        seeds=table.seeds[slots],
        num_top=np.array(draws.num_top, np.int32),
        bias_starts=np.array(bias_starts, np.int32),
        bias_ids=np.array(ids, np.int32),
        bias_values=np.array(values, np.float32),
        mask_rows=np.array(draws.mask_rows, np.int32),
        masks=masks,
        histories=table.histories,
    )


def row_results(
    steps: tuple[RowStep, ...], draws: Draws, result: SampleResult, is_output: NDArray[np.bool_]
) -> tuple[RowResult, ...]:
    """One result a plan row, in the plan's order. `is_output[i]`: entry i of the draws is the row's new token."""
    sampled: list[tuple[TokenLogprobs, ...]] = [()] * len(steps)
    scores: dict[int, list[TokenLogprobs]] = {}
    tokens, logprobs, outputs = result.tokens.tolist(), result.logprobs.tolist(), is_output.tolist()
    for index, plan_row in enumerate(draws.plan_rows):
        num_top = draws.num_top[index]
        top = _top(result, index, num_top) if num_top else ()
        entry = TokenLogprobs(tokens[index], logprobs[index], top)
        if outputs[index]:
            sampled[plan_row] = (entry,)
        else:
            scores.setdefault(plan_row, []).append(entry)
    return tuple(
        RowResult(step.row, sampled[index], tuple(scores[index]) if index in scores else ())
        for index, step in enumerate(steps)
    )


def _top(result: SampleResult, index: int, num_top: int) -> tuple[tuple[int, float], ...]:
    ids, values = result.top_ids[index, :num_top].tolist(), result.top_logprobs[index, :num_top].tolist()
    return tuple(zip(ids, values, strict=True))
