"""Thoughts are split from the answer, however the text arrives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.text.answer_events import Content, Reasoning
from paceline.text.message_reader import MessageReader
from paceline.text.thinking import ThinkSplitter

# text, whether thoughts need no tag, thoughts, content, characters of thoughts
CASES = [
    ("<think>\nWhy?\n\nSo.\n</think>\n\nYes.\n", False, "Why?\n\nSo.", "Yes.\n", 26),
    ("\n<think>a</think>b", False, "a", "b", 17),
    ("a</think>b", True, "a", "b", 9),
    ("<think>a</think>b", True, "a", "b", 16),
    ("<think></think>b", False, "", "b", 15),
    ("plain <think>a</think>", False, "", "plain <think>a</think>", 0),
    ("<thin", False, "", "<thin", 0),
    ("  ", False, "", "  ", 0),
    ("<think>cut off </thi", False, "cut off </thi", "", float("inf")),
    ("never ends", True, "never ends", "", float("inf")),
    ("<think>a</think>b <think>c</think>", False, "a", "b <think>c</think>", 16),
]


def split(pieces: list[str], starts_thinking: bool) -> tuple[str, str, float]:
    splitter = ThinkSplitter(starts_thinking)
    parts = [splitter.push(piece) for piece in pieces]
    parts.append(splitter.finish())
    thoughts, content = map("".join, zip(*parts, strict=True))
    return thoughts, content, splitter.thought_end


@pytest.mark.parametrize(("text", "starts_thinking", "thoughts", "content", "end"), CASES)
def test_thoughts_and_content(text: str, starts_thinking: bool, thoughts: str, content: str, end: float) -> None:
    assert split([text], starts_thinking) == (thoughts, content, end)
    for place in range(len(text) + 1):
        assert split([text[:place], text[place:]], starts_thinking) == (thoughts, content, end), place
    assert split(list(text), starts_thinking) == (thoughts, content, end)


@given(st.lists(st.sampled_from(["<think>", "</think>", "<th", "</", "ink>", " ", "\n", "a", "é"]), max_size=12))
def test_no_text_is_lost(fragments: list[str]) -> None:
    text = "".join(fragments)
    expected = ("", text)
    if text.lstrip().startswith("<think>"):
        thoughts, _, content = text.lstrip().removeprefix("<think>").partition("</think>")
        expected = (thoughts.strip(), content.lstrip())
    assert split(fragments, False)[:2] == split([text], False)[:2] == expected


def test_thoughts_come_before_anything_is_content() -> None:
    reader = MessageReader(ThinkSplitter(False), None)
    assert reader.push("<think>a b") == [Reasoning("a b")]
    assert reader.push("</think>c") == [Content("c")]
    assert reader.finish() == []
