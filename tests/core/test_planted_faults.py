"""Faults of the kind that schedulers have had, planted one at a time: the short fuzzer must catch each of them.

Without a fault the same seed passes, so what is caught is the fault.
"""

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fuzz import fuzz

import paceline.core.scheduler as scheduler_module
from paceline.core.blocks import BlockPool
from paceline.core.kv import KvManager, Lease, Match, Opening
from paceline.core.output import SequenceOutput
from paceline.core.plan import RowResult, StepPlan, TokenLogprobs
from paceline.core.prefixes import PendingPrefixes
from paceline.core.queue import WaitingQueue
from paceline.core.radix import Node, RadixTree
from paceline.core.request import BlockId, FinishReason, RequestId
from paceline.core.scheduler import Draft, Scheduler
from paceline.core.sequence import Sequence
from paceline.core.tally import Tally

OPERATIONS, SEED = 12_000, 7
Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]


def copy_is_one_slot_short(patch: Patch) -> None:
    original = KvManager.open

    def open_(self: KvManager, match: Match) -> Opening:
        opening = original(self, match)
        return replace(opening, copies=tuple(replace(copy, num_tokens=copy.num_tokens - 1) for copy in opening.copies))

    patch.setattr(KvManager, "open", open_)


def copies_are_left_out_of_the_plan(patch: Patch) -> None:
    original = Scheduler._seal
    patch.setattr(Scheduler, "_seal", lambda self, draft: replace(original(self, draft), copies=()))


def a_held_block_is_evicted(patch: Patch) -> None:
    original = RadixTree.evict

    def evict(self: RadixTree, is_held: Callable[[BlockId], bool]) -> BlockId | None:
        return original(self, lambda block: False)

    def reclaim(self: BlockPool, block: BlockId) -> None:
        self._is_published[block] = 0
        self.num_cached -= self._holders[block] == 0
        self._free.append(block)

    patch.setattr(RadixTree, "evict", evict)
    patch.setattr(BlockPool, "reclaim", reclaim)


def a_block_is_published_before_it_is_full(patch: Patch) -> None:
    original = KvManager.commit

    def commit(self: KvManager, lease: Lease, tokens: "array[int]", num_computed: int) -> None:
        original(self, lease, tokens, min(num_computed + 1, len(tokens)))

    patch.setattr(KvManager, "commit", commit)


def the_last_token_is_cached_before_it_is_computed(patch: Patch) -> None:
    original = KvManager.close

    def close(self: KvManager, lease: Lease, tokens: "array[int]", num_computed: int) -> None:
        original(self, lease, tokens, min(len(tokens), len(lease.blocks) * self.block_size))

    patch.setattr(KvManager, "close", close)


def a_cancelled_sequence_keeps_its_blocks(patch: Patch) -> None:
    original = Scheduler.cancel

    def cancel(self: Scheduler, request_id: RequestId) -> list[SequenceOutput]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(KvManager, "close", lambda *arguments: None)
            return original(self, request_id)

    patch.setattr(Scheduler, "cancel", cancel)


def only_the_first_choice_is_cancelled(patch: Patch) -> None:
    original = Scheduler.cancel

    def cancel(self: Scheduler, request_id: RequestId) -> list[SequenceOutput]:
        siblings = self._requests.get(request_id, [])
        kept, siblings[1:] = siblings[1:], []
        outputs = original(self, request_id)
        if kept:
            self._requests[request_id] = kept
        return outputs

    patch.setattr(Scheduler, "cancel", cancel)


def the_oldest_is_preempted(patch: Patch) -> None:
    patch.setattr(scheduler_module, "choose_victim", lambda running, kv: next(iter(running)))


def a_preempted_sequence_is_not_queued_again(patch: Patch) -> None:
    original = WaitingQueue.push

    def push(self: WaitingQueue, sequence: Sequence) -> None:
        if sequence.num_preemptions == 0:
            original(self, sequence)

    patch.setattr(WaitingQueue, "push", push)


def the_budget_is_exceeded_by_one(patch: Patch) -> None:
    patch.setattr(scheduler_module, "Draft", lambda budget, now_s: Draft(budget + 1, now_s))


def followers_of_a_leader_that_left_are_forgotten(patch: Patch) -> None:
    original = PendingPrefixes.release

    def release(self: PendingPrefixes, leader: Sequence, num_computed: int | None) -> list[Sequence]:
        woken = original(self, leader, num_computed)
        return woken if num_computed is not None else []

    patch.setattr(PendingPrefixes, "release", release)


def a_resumed_sequence_samples_its_last_token_again(patch: Patch) -> None:
    original = WaitingQueue.push

    def push(self: WaitingQueue, sequence: Sequence) -> None:
        if sequence.num_preemptions > 0 and sequence.num_output > 0:
            sequence.tokens.pop()
        original(self, sequence)

    patch.setattr(WaitingQueue, "push", push)


def a_resumed_sequence_scores_its_prompt_again(patch: Patch) -> None:
    original = WaitingQueue.push

    def push(self: WaitingQueue, sequence: Sequence) -> None:
        sequence.num_scored = 1
        original(self, sequence)

    patch.setattr(WaitingQueue, "push", push)


def a_resumed_sequence_counts_as_a_hit(patch: Patch) -> None:
    original = Tally.admit

    def admit(self: Tally, sequence: Sequence, num_found: int) -> None:
        original(self, sequence, num_found)
        if sequence.num_preemptions > 0:
            self.num_cached_tokens += num_found

    patch.setattr(Tally, "admit", admit)


def namespaces_share_one_tree(patch: Patch) -> None:
    walk, root = RadixTree.walk, RadixTree.root

    def walk_shared(self: RadixTree, namespace: bytes, tokens: bytes) -> tuple[list[Node], Node | None, int]:
        return walk(self, b"", tokens)

    patch.setattr(RadixTree, "walk", walk_shared)
    patch.setattr(RadixTree, "root", lambda self, namespace: root(self, b""))


def a_match_may_leave_nothing_to_compute(patch: Patch) -> None:
    patch.setattr(Sequence, "match_limit", property(lambda self: len(self.tokens)))


def a_match_skips_positions_that_want_scores(patch: Patch) -> None:
    patch.setattr(Sequence, "match_limit", property(lambda self: len(self.tokens) - 1))


def a_mean_starts_at_a_cached_prefix(patch: Patch) -> None:
    def limit(self: Sequence) -> int:
        return 0 if self.sampling.num_prompt_logprobs is not None else len(self.tokens) - 1

    patch.setattr(Sequence, "match_limit", property(limit))


def admission_counts_only_the_cached_prefix(patch: Patch) -> None:
    patch.setattr(KvManager, "cost", lambda self, match, num_tokens: 0)


def a_row_that_was_left_still_takes_results(patch: Patch) -> None:
    def update(self: Scheduler, plan: StepPlan, result: Any) -> list[SequenceOutput]:
        outputs = [
            self._record(sequence, step, answer)
            for step, answer in zip(plan.rows, result.rows, strict=True)
            if (sequence := self._rows[step.row]) is not None
        ]
        return [output for output in outputs if output is not None]

    original = Scheduler._leave_row

    def leave_row(self: Scheduler, sequence: Sequence) -> None:
        row = sequence.row
        original(self, sequence)
        assert row is not None
        self._rows[row] = sequence

    patch.setattr(Scheduler, "update", update)
    patch.setattr(Scheduler, "_leave_row", leave_row)


def a_cached_node_is_forgotten_when_touched(patch: Patch) -> None:
    """A leaf in use when its turn to be evicted came is never offered again: the pool leaks."""
    patch.setattr(KvManager, "_offer_if_idle", lambda self, node: None)


def tokens_past_the_end_are_kept(patch: Patch) -> None:
    def take_tokens(sequence: Sequence, result: RowResult) -> tuple[tuple[TokenLogprobs, ...], FinishReason | None]:
        sequence.tokens.extend(token.token_id for token in result.sampled)
        return result.sampled, sequence.stop_reason() if result.sampled or sequence.debt == 0 else None

    patch.setattr(scheduler_module, "_take_tokens", take_tokens)


def only_the_first_token_of_a_step_is_known(patch: Patch) -> None:
    original = scheduler_module._take_tokens

    def take_tokens(sequence: Sequence, result: RowResult) -> tuple[tuple[TokenLogprobs, ...], FinishReason | None]:
        return original(sequence, replace(result, sampled=result.sampled[:1]))

    patch.setattr(scheduler_module, "_take_tokens", take_tokens)


FAULTS: list[Fault] = [
    tokens_past_the_end_are_kept,
    only_the_first_token_of_a_step_is_known,
    copy_is_one_slot_short,
    copies_are_left_out_of_the_plan,
    a_held_block_is_evicted,
    a_block_is_published_before_it_is_full,
    the_last_token_is_cached_before_it_is_computed,
    a_cancelled_sequence_keeps_its_blocks,
    only_the_first_choice_is_cancelled,
    the_oldest_is_preempted,
    a_preempted_sequence_is_not_queued_again,
    the_budget_is_exceeded_by_one,
    followers_of_a_leader_that_left_are_forgotten,
    a_resumed_sequence_samples_its_last_token_again,
    a_resumed_sequence_scores_its_prompt_again,
    a_resumed_sequence_counts_as_a_hit,
    namespaces_share_one_tree,
    a_match_may_leave_nothing_to_compute,
    a_match_skips_positions_that_want_scores,
    a_mean_starts_at_a_cached_prefix,
    admission_counts_only_the_cached_prefix,
    a_row_that_was_left_still_takes_results,
    a_cached_node_is_forgotten_when_touched,
]


def test_without_a_fault_the_same_seed_passes() -> None:
    events = fuzz(OPERATIONS, SEED)
    assert events["preempt"] > 0
    assert events["resume while scoring"] > 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_fuzzer_catches(fault: Fault, monkeypatch: Patch) -> None:
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        fuzz(OPERATIONS, SEED)
