"""Same request, same tokens: random mixes have the bits of their plain runs, whatever the kernels and threads."""

from dataclasses import replace
from functools import cache

import pytest

from exactness.mixes import Counts, Machine, load, run_mix
from paceline.ops.cpu import instruction_sets

# A taste of each, more of the set that serves here; `make soak` runs hundreds.
FAST_MIXES, SLOW_MIXES = 12, 1
MACHINES = [(isa, threads, False) for isa in instruction_sets() for threads in (1, 2)]
MACHINES.append((instruction_sets()[0], 2, True))


@cache
def machine(isa: str, threads: int, int8: bool = False) -> Machine:
    return load(isa, threads, int8)


@pytest.mark.parametrize(("isa", "threads", "int8"), MACHINES)
def test_mixes_have_the_bits_of_plain_runs(isa: str, threads: int, int8: bool) -> None:
    is_fast = isa == instruction_sets()[0] != "portable"
    counts = Counts()
    for seed in range(FAST_MIXES if is_fast else SLOW_MIXES):
        run_mix(machine(isa, threads, int8), seed, 400 if is_fast else 60, counts)
    assert counts.tokens > (600 if is_fast else 20)
    assert not is_fast or (counts.with_preemption >= 3 and counts.with_partial_copy >= 3), counts
    assert not is_fast or (counts.with_grammar >= 6 and counts.forced >= 50), counts


def test_thread_counts_agree_with_each_other() -> None:
    """Plain runs on one thread are the reference for mixes on two."""
    one, two = machine(instruction_sets()[0], 1), machine(instruction_sets()[0], 2)
    counts = Counts()
    mixed = replace(two, plain_bits=one.plain_bits)
    for seed in range(FAST_MIXES):
        run_mix(mixed, seed, 400, counts)
    assert counts.mixes == FAST_MIXES
