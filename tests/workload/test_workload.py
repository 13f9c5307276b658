"""One seed makes one workload, item for item, lazily; each question has its own randomness."""

import os
import subprocess
import sys
import tracemalloc
from collections import deque
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from work_world import prompt_ids, workloads

from paceline.errors import ConfigError
from paceline.workload.arrivals import ClosedLoop, Constant, Poisson, Recorded
from paceline.workload.catalogue import find_workload
from paceline.workload.distributions import Fixed, Geometric, LogNormal
from paceline.workload.item import Segment, WorkItem
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import SystemPrompt
from paceline.workload.sessions import Sessions
from paceline.workload.workload import Workload

CHAT = Workload(
    lengths=Lengths(LogNormal(161, 0.8), Geometric(64), 0.3),
    arrivals=Poisson(4),
    prefix=SystemPrompt(32),
    sessions=Sessions(Geometric(3), LogNormal(2, 1)),
    seed=7,
)


@settings(max_examples=60, deadline=None)
@given(workloads, st.integers(0, 60), st.integers(0, 60))
def test_the_same_seed_makes_the_same_items_and_a_shorter_run_begins_a_longer_one(
    workload: Workload, num_requests: int, more: int
) -> None:
    items = list(workload.items(num_requests))
    assert len(items) == num_requests
    assert items == list(workload.items(num_requests))
    assert items == list(islice(workload.items(num_requests + more), num_requests))


@settings(max_examples=60, deadline=None)
@given(workloads)
def test_items_keep_the_contract(workload: Workload) -> None:
    items = list(workload.items(50))
    assert [item.index for item in items] == list(range(50))
    assert all(item.output_tokens >= 1 and item.prompt_tokens >= 1 for item in items)
    assert all(segment.num_tokens >= 1 for item in items for segment in item.prompt)
    times = [item.arrival_s for item in items]
    if isinstance(workload.arrivals, ClosedLoop):
        assert set(times) == {None}
    else:
        assert times == sorted(times)
        assert min(times) >= 0


@settings(max_examples=60, deadline=None)
@given(workloads)
def test_the_turns_of_a_session_follow_one_another(workload: Workload) -> None:
    last = None
    for item in workload.items(50):
        if item.session_id is None:
            assert (item.turn, item.think_s) == (0, 0.0)
        elif item.turn:
            assert last is not None
            assert (last.session_id, last.turn, last.arrival_s) == (item.session_id, item.turn - 1, item.arrival_s)
        else:
            assert item.think_s == 0
            assert item.session_id == (0 if last is None else last.session_id + 1)
        last = item


def test_the_items_of_a_seed_stay_the_same_from_version_to_version() -> None:
    system, first, answer, second = Segment(2, 32), Segment(0, 717), Segment(1, 76), Segment(4, 110)
    items = list(CHAT.items(3))
    assert [item.prompt for item in items[:2]] == [(system, first), (system, first, answer, second)]
    assert [item.output_tokens for item in items[:2]] == [76, 10]
    assert [item.turn for item in items] == [0, 1, 0]
    assert [item.arrival_s for item in items[1:]] == [pytest.approx(0.159473430165), pytest.approx(0.873335058529)]
    assert items[1].think_s == pytest.approx(2.882271167112)


def test_another_process_makes_the_same_items_whatever_its_hash_seed() -> None:
    code = f"import sys; sys.path[:] = {sys.path}; from test_workload import CHAT; print(list(CHAT.items(20)), end='')"
    env = {**os.environ, "PYTHONHASHSEED": "5"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert other.stdout == str(list(CHAT.items(20))), other.stderr


def test_seeds_differ() -> None:
    assert list(CHAT.items(5)) != list(replace(CHAT, seed=8).items(5))


def test_changing_the_arrivals_leaves_lengths_turns_and_prompts_alone() -> None:
    slow = [replace(item, arrival_s=None) for item in replace(CHAT, arrivals=Constant(0.5)).items(40)]
    assert slow == list(replace(CHAT, arrivals=ClosedLoop(3)).items(40))


def test_prompts_are_new_in_every_repetition_with_another_token_seed() -> None:
    item = next(CHAT.items(1))
    again, other = prompt_ids(item), prompt_ids(item, seed=12)
    assert prompt_ids(item) == again
    assert len(again) == item.prompt_tokens == len(other)
    assert sum(a == b for a, b in zip(again, other, strict=True)) < 3


def test_a_huge_run_is_made_one_item_at_a_time() -> None:
    workload = replace(CHAT, sessions=None, lengths=find_workload("azure2023_conv").lengths)
    items = workload.items()
    deque(islice(items, 100), maxlen=0)
    tracemalloc.start()
    deque(islice(items, 10_000), maxlen=0)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 50_000


def test_recorded_arrivals_end_and_say_so_at_once() -> None:
    workload = Workload(Lengths(Fixed(5), Fixed(6)), Recorded((3.0, 3.5, 5.0), speed=2))
    assert [item.arrival_s for item in workload.items(3)] == [0.0, 0.25, 1.0]
    assert len(list(workload.items())) == 3
    with pytest.raises(ConfigError, match="4 requests asked for, but only 3"):
        workload.items(4)
    with pytest.raises(ConfigError, match="must not be negative, got -1"):
        workload.items(-1)


def test_an_item_outside_sessions_is_just_that() -> None:
    workload = Workload(Lengths(Fixed(5), Fixed(6)), ClosedLoop(2))
    assert list(workload.items(2)) == [
        WorkItem(0, None, (Segment(0, 5),), 6),
        WorkItem(1, None, (Segment(4, 5),), 6),
    ]
