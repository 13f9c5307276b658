"""What prompts share: nothing, a fixed share, a system prompt, examples, a document.

Each is asked for the head of the prompt of session number `unit` (an item, where there are no sessions) and answers
with the shared segments and how many tokens of its own the prompt has left. That later turns replay the earlier ones
is the business of `Sessions`.
"""

from dataclasses import dataclass
from typing import Protocol

from paceline.workload.checks import check_range, check_whole
from paceline.workload.item import Segment
from paceline.workload.segments import shared_segment

MAX_PART_TOKENS = 2**24
MAX_PARTS = 2**20

Head = tuple[tuple[Segment, ...], int]


class Prefix(Protocol):
    """What the workload needs to know of a prefix graph."""

    def head(self, unit: int, input_tokens: int) -> Head:
        """(shared segments, new tokens) of a prompt for which `input_tokens` were drawn."""


@dataclass(frozen=True, slots=True)
class Unshared:
    """Every prompt is new: the control."""

    def head(self, unit: int, input_tokens: int) -> Head:
        """No shared segment."""
        return (), input_tokens


@dataclass(frozen=True, slots=True)
class SharedShare:
    """The first `share` of every prompt is the same text, lengths stay as drawn. At 1, prompts as long are equal."""

    share: float

    def __post_init__(self) -> None:
        check_range("share", self.share, 0, 1)

    def head(self, unit: int, input_tokens: int) -> Head:
        """A piece of the one shared segment: longer pieces begin as shorter ones."""
        shared_tokens = round(self.share * input_tokens)
        shared = (shared_segment(0, shared_tokens),) if shared_tokens else ()
        return shared, input_tokens - shared_tokens


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    """The same `num_tokens` before every prompt."""

    num_tokens: int

    def __post_init__(self) -> None:
        check_whole("tokens", self.num_tokens, 1, MAX_PART_TOKENS)

    def head(self, unit: int, input_tokens: int) -> Head:
        """The system prompt, then what was drawn."""
        return (shared_segment(0, self.num_tokens),), input_tokens


@dataclass(frozen=True, slots=True)
class FewShot:
    """The same worked examples before every question."""

    num_examples: int
    example_tokens: int

    def __post_init__(self) -> None:
        check_whole("examples", self.num_examples, 1, 1024)
        check_whole("tokens", self.example_tokens, 1, MAX_PART_TOKENS)

    def head(self, unit: int, input_tokens: int) -> Head:
        """One segment an example, then what was drawn."""
        return tuple(shared_segment(number, self.example_tokens) for number in range(self.num_examples)), input_tokens


@dataclass(frozen=True, slots=True)
class Documents:
    """`questions_each` questions on each document, `num_open` documents asked about in turn at any time."""

    document_tokens: int
    questions_each: int
    num_open: int = 1

    def __post_init__(self) -> None:
        check_whole("tokens", self.document_tokens, 1, MAX_PART_TOKENS)
        check_whole("questions", self.questions_each, 1, MAX_PARTS)
        check_whole("open", self.num_open, 1, MAX_PARTS)

    def head(self, unit: int, input_tokens: int) -> Head:
        """The document, then the question that was drawn."""
        round_number = unit // (self.questions_each * self.num_open)
        document = round_number * self.num_open + unit % self.num_open
        return (shared_segment(document, self.document_tokens),), input_tokens
