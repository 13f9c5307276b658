"""What prompts share is what the prefix graph says, to the token; what they don't share differs at once."""

from collections.abc import Iterator
from itertools import combinations, islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from work_world import TOKEN_SEED, VOCABULARY, common_prefix, prompt_ids

from paceline.workload.arrivals import ClosedLoop
from paceline.workload.distributions import Fixed, Uniform
from paceline.workload.item import Segment, WorkItem, segment_tokens
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import Documents, FewShot, Prefix, SharedShare, SystemPrompt, Unshared
from paceline.workload.segments import (
    answer_segment,
    answered_index,
    block_segment,
    new_segment,
    segment_words,
    shared_segment,
)
from paceline.workload.sessions import Sessions
from paceline.workload.words import WORDS
from paceline.workload.workload import Workload

# Unique parts begin alike by chance in about one of 50,000 pairs, by one token.
CHANCE_TOKENS = 1
LENGTHS = Lengths(Uniform(20, 60), Uniform(5, 15))


def workload(prefix: Prefix, sessions: Sessions | None = None) -> Workload:
    return Workload(LENGTHS, ClosedLoop(4), prefix, sessions, seed=3)


def shared_lengths(items: list[WorkItem]) -> set[int]:
    """Common prefix of every pair."""
    return {common_prefix(prompt_ids(a), prompt_ids(b)) for a, b in combinations(items, 2)}


def test_unshared_prompts_share_nothing() -> None:
    assert max(shared_lengths(list(workload(Unshared()).items(20)))) <= CHANCE_TOKENS


def test_a_system_prompt_is_shared_by_all_and_comes_on_top_of_the_drawn_length() -> None:
    items = list(workload(SystemPrompt(100)).items(12))
    plain = list(workload(Unshared()).items(12))
    assert [item.prompt_tokens for item in items] == [100 + item.prompt_tokens for item in plain]
    assert shared_lengths(items) <= {100, 101}


def test_examples_are_shared_by_all_and_differ_from_one_another() -> None:
    items = list(workload(FewShot(4, 25)).items(8))
    assert shared_lengths(items) <= {100, 101}
    ids = prompt_ids(items[0])
    assert len({tuple(ids[at : at + 25]) for at in range(0, 100, 25)}) == 4


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_a_share_of_every_prompt_is_the_same_text_and_lengths_stay(share: float) -> None:
    items = list(workload(SharedShare(share)).items(12))
    plain = list(workload(Unshared()).items(12))
    assert [item.prompt_tokens for item in items] == [item.prompt_tokens for item in plain]
    for first, second in combinations(items, 2):
        expected = round(share * min(first.prompt_tokens, second.prompt_tokens))
        assert 0 <= common_prefix(prompt_ids(first), prompt_ids(second)) - expected <= CHANCE_TOKENS


def test_many_questions_are_asked_on_each_document_some_documents_in_turn() -> None:
    items = list(workload(Documents(200, questions_each=3, num_open=2)).items(12))
    documents = [item.prompt[0].segment_id for item in items]
    first, second, third, fourth = dict.fromkeys(documents)
    assert documents == [first, second] * 3 + [third, fourth] * 3
    assert common_prefix(prompt_ids(items[0]), prompt_ids(items[2])) >= 200
    assert common_prefix(prompt_ids(items[0]), prompt_ids(items[1])) <= CHANCE_TOKENS


def test_an_agent_loop_replays_prompt_and_answer_and_adds_new_tokens() -> None:
    items = list(workload(SystemPrompt(50), Sessions(Fixed(5), Fixed(0.5))).items(10))
    assert [(item.session_id, item.turn) for item in items] == [(i // 5, i % 5) for i in range(10)]
    assert [item.think_s for item in items] == [0, 0.5, 0.5, 0.5, 0.5] * 2
    for before, after in pairwise(items[:5]):
        assert after.prompt[:-1] == (*before.prompt, answer_segment(before.index, before.output_tokens))
        assert after.prompt[-1] == new_segment(after.index, after.prompt[-1].num_tokens)
        replayed = before.prompt_tokens + before.output_tokens
        assert common_prefix(prompt_ids(before), prompt_ids(after)) == before.prompt_tokens
        assert after.prompt_tokens > replayed
        assert [answered_index(s) for s in after.prompt if answered_index(s) is not None] == list(range(after.index))
    assert items[5].prompt[0] == items[0].prompt[0]
    assert common_prefix(prompt_ids(items[5]), prompt_ids(items[0])) in (50, 51)


def test_turns_without_history_stand_alone() -> None:
    items = list(workload(Unshared(), Sessions(Fixed(4), replays_history=False)).items(8))
    assert [len(item.prompt) for item in items] == [1] * 8
    assert max(shared_lengths(items)) <= CHANCE_TOKENS


def test_a_session_ends_before_its_prompt_grows_too_long_but_always_has_a_first_turn() -> None:
    items = list(workload(Unshared(), Sessions(Fixed(1000), max_prompt_tokens=300)).items(60))
    assert max(item.prompt_tokens for item in items) <= 300
    assert len({item.session_id for item in items}) > 5
    assert [item.index for item in items] == list(range(60))
    tight = list(workload(SystemPrompt(400), Sessions(Fixed(1000), max_prompt_tokens=300)).items(6))
    assert [item.turn for item in tight] == [0] * 6


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**66), st.integers(1, 300), st.integers(1, 300), st.integers(0, 2**64))
def test_a_longer_segment_begins_as_a_shorter_one(segment_id: int, length: int, other: int, seed: int) -> None:
    short, long = sorted((length, other))
    tokens = segment_tokens(Segment(segment_id, long), seed, VOCABULARY)
    assert len(tokens) == long
    assert tokens[:short] == segment_tokens(Segment(segment_id, short), seed, VOCABULARY)
    assert all(0 <= token < VOCABULARY for token in tokens)


def test_segments_of_different_kinds_never_meet() -> None:
    numbers = range(50)
    makers = (new_segment, answer_segment, shared_segment, block_segment)
    assert len({make(number, 1).segment_id for make in makers for number in numbers}) == 200
    assert [answered_index(answer_segment(n, 1)) for n in numbers] == list(numbers)
    assert all(answered_index(make(7, 1)) is None for make in makers if make is not answer_segment)


def test_words_are_common_unique_to_the_segment_and_the_seed_and_do_not_end() -> None:
    def words(segment: Segment, seed: int, count: int = 500) -> list[str]:
        stream: Iterator[str] = segment_words(segment, seed)
        return list(islice(stream, count))

    assert len(set(WORDS)) == len(WORDS) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() and len(word) <= 7 for word in WORDS)
    first = words(Segment(8, 10), TOKEN_SEED)
    assert first == words(Segment(8, 99), TOKEN_SEED)
    assert first[:100] == words(Segment(8, 10), TOKEN_SEED, 100)
    assert common_prefix(first, words(Segment(9, 10), TOKEN_SEED)) < 4
    assert common_prefix(first, words(Segment(8, 10), TOKEN_SEED + 1)) < 4
    assert len(set(words(Segment(8, 10), TOKEN_SEED, 5000))) == 256
