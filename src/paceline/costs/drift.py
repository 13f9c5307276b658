"""How TPOT drifts while a session goes on: each turn's question and answer stay in the context of the next.

With the prefix cache a turn prefills only what is new; its KV is read by every token all the same, and kept.
"""

from dataclasses import dataclass

from paceline.costs.capacity import Replica
from paceline.costs.step import decode_work, prefill_work
from paceline.costs.units import GB


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of every session at once. `tpot_s`: with prefill's share; `decode_step_s`: nothing else running;
    `memory_limit`: sessions that fit at its end.
    """

    number: int
    num_sessions: int
    context_tokens: int
    decode_step_s: float
    tpot_s: float
    memory_limit: int
    kv_gb: float


def turns(replica: Replica, batch: int, num_turns: int) -> tuple[Turn, ...]:
    """The turns of `batch` sessions that stay together, up to the model's context. Input and output tokens of the load
    are those of a turn.
    """
    estimator, load = replica.estimator, replica.load
    workspace_bytes = estimator.memory_bytes * replica.margins.workspace_share
    found = []
    for number in range(1, num_turns + 1):
        context_tokens = number * load.last_context
        if context_tokens > estimator.model.max_context:
            break
        step_s = replica.costs.step_s(decode_work(batch, context_tokens - load.output_tokens / 2))
        together, num_cached = replica.num_prefilled_together, context_tokens - load.last_context + load.cached_tokens
        prefill_s = replica.costs.step_s(prefill_work(together, load.computed_tokens, num_cached)) / together
        found.append(
            Turn(
                number=number,
                num_sessions=batch,
                context_tokens=context_tokens,
                decode_step_s=step_s,
                tpot_s=step_s + batch * prefill_s / load.output_tokens,
                memory_limit=estimator.memory_limit(context_tokens, workspace_bytes),
                kv_gb=batch * estimator.kv_bytes(context_tokens) / GB,
            )
        )
    return tuple(found)
