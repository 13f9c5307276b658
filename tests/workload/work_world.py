"""Things the workload tests share: strategies for every kind of part, and plain statistics."""

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from paceline.workload.arrivals import ClosedLoop, Constant, Gamma, OnOff, Poisson
from paceline.workload.distributions import Clipped, Fixed, Geometric, LogNormal, Uniform
from paceline.workload.item import WorkItem, segment_tokens
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import Documents, FewShot, SharedShare, SystemPrompt, Unshared
from paceline.workload.sessions import Sessions
from paceline.workload.workload import Workload

VOCABULARY = 50_000
TOKEN_SEED = 11

small = st.integers(1, 40)
distributions = st.one_of(
    st.builds(Fixed, small),
    st.builds(lambda low, more: Uniform(low, low + more), small, small),
    st.builds(Geometric, st.floats(1, 60)),
    st.builds(lambda median, sigma: Clipped(LogNormal(median, sigma), 1, 80), st.floats(1, 40), st.floats(0, 2)),
)
rates = st.floats(0.1, 100)
arrivals = st.one_of(
    st.builds(ClosedLoop, small),
    st.builds(Constant, rates),
    st.builds(Poisson, rates),
    st.builds(Gamma, rates, st.floats(0.05, 20)),
    st.builds(OnOff, rates, st.floats(0.01, 5), st.floats(0.01, 5)),
)
prefixes = st.one_of(
    st.just(Unshared()),
    st.builds(SharedShare, st.floats(0, 1)),
    st.builds(SystemPrompt, small),
    st.builds(FewShot, st.integers(1, 4), small),
    st.builds(Documents, small, st.integers(1, 4), st.integers(1, 3)),
)
sessions = st.none() | st.builds(
    Sessions,
    num_turns=st.builds(Geometric, st.floats(1, 5)),
    think_s=distributions,
    replays_history=st.booleans(),
    max_prompt_tokens=st.integers(50, 1000),
)
workloads = st.builds(
    Workload,
    lengths=st.builds(Lengths, distributions, distributions, st.floats(-1, 1)),
    arrivals=arrivals,
    prefix=prefixes,
    sessions=sessions,
    seed=st.integers(0, 2**64),
)


def prompt_ids(item: WorkItem, seed: int = TOKEN_SEED) -> list[int]:
    """The prompt as a sender makes it."""
    return [token for segment in item.prompt for token in segment_tokens(segment, seed, VOCABULARY)]


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two prompts begin with alike."""
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return length


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def variation(values: Sequence[float]) -> float:
    """Coefficient of variation: standard deviation over mean."""
    middle = mean(values)
    return math.sqrt(mean([(value - middle) ** 2 for value in values])) / middle


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, ties in the order they stand (enough for many distinct values)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    result = [0.0] * len(values)
    for rank, index in enumerate(order):
        result[index] = rank
    return result


def correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's."""
    a, b = mean(first), mean(second)
    together = mean([(x - a) * (y - b) for x, y in zip(first, second, strict=True)])
    return together / (a * b * variation(first) * variation(second))
