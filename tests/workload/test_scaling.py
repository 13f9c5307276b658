"""A scaled workload is smaller and keeps who shares what with whom."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from work_world import common_prefix, prompt_ids, workloads

from paceline.errors import ConfigError
from paceline.workload.arrivals import Poisson
from paceline.workload.catalogue import find_workload
from paceline.workload.distributions import Fixed
from paceline.workload.scaling import Scaling
from paceline.workload.sessions import Sessions
from paceline.workload.traces import read_mooncake
from paceline.workload.workload import Workload


@settings(max_examples=40, deadline=None)
@given(workloads)
def test_scaling_by_one_changes_nothing(workload: Workload) -> None:
    items = list(workload.items(30))
    assert list(Scaling().items(items)) == items


@settings(max_examples=40, deadline=None)
@given(workloads, st.floats(0.5, 20), st.integers(1, 50), st.integers(1, 50))
def test_scaled_items_fit_and_are_never_empty(workload: Workload, divisor: float, prompt: int, output: int) -> None:
    scaling = Scaling(divisor, divisor, max_prompt_tokens=prompt, max_output_tokens=output)
    for item in scaling.items(workload.items(30)):
        assert 1 <= item.prompt_tokens <= prompt
        assert 1 <= item.output_tokens <= output


def test_blocks_of_a_trace_stay_shared_at_their_smaller_size() -> None:
    lines = [
        '{"timestamp": 0, "input_length": 1100, "output_length": 52, "hash_ids": [46, 47, 48]}',
        '{"timestamp": 3000, "input_length": 1600, "output_length": 26, "hash_ids": [46, 47, 2353, 2354]}',
    ]
    first, second = Scaling(input_divisor=8, output_divisor=4, speed=2).items(read_mooncake(lines))
    assert [segment.num_tokens for segment in second.prompt] == [64, 64, 64, 8]
    assert (first.output_tokens, second.output_tokens, second.arrival_s) == (13, 7, 1.5)
    assert common_prefix(prompt_ids(first), prompt_ids(second)) in (128, 129)


def test_replayed_answers_stay_as_long_as_the_answers() -> None:
    lengths = find_workload("azure2023_conv").lengths
    workload = Workload(lengths, Poisson(1), sessions=Sessions(Fixed(4)), seed=2)
    items = list(Scaling(input_divisor=8, output_divisor=4, max_output_tokens=60).items(workload.items(4)))
    for before, after in pairwise(items):
        assert after.prompt[: len(before.prompt)] == before.prompt
        assert after.prompt[len(before.prompt)].num_tokens == before.output_tokens


def test_wrong_factors_are_named() -> None:
    with pytest.raises(ConfigError, match=r"input divisor must be between 0\.001"):
        Scaling(input_divisor=0)
    with pytest.raises(ConfigError, match=r"max prompt tokens must be a whole number, got 1\.5"):
        Scaling(max_prompt_tokens=1.5)  # type: ignore[arg-type]
