"""A workload made to fit a smaller machine: shorter prompts and answers, other speed, the same sharing and shape."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from paceline.workload.checks import check_range, check_whole
from paceline.workload.item import Segment, WorkItem
from paceline.workload.segments import answered_index

MAX_TOKENS = 2**24


@dataclass(frozen=True, slots=True)
class Scaling:
    """Lengths are divided (rounded up, so nothing vanishes), then cut; arrivals come `speed` times as fast.

    Every segment is divided by itself: what was shared stays shared. A prompt that is too long loses its end.
    """

    input_divisor: float = 1.0
    output_divisor: float = 1.0
    max_prompt_tokens: int = MAX_TOKENS
    max_output_tokens: int = MAX_TOKENS
    speed: float = 1.0

    def __post_init__(self) -> None:
        check_range("input divisor", self.input_divisor, 1e-3, 1e6)
        check_range("output divisor", self.output_divisor, 1e-3, 1e6)
        check_whole("max prompt tokens", self.max_prompt_tokens, 1, MAX_TOKENS)
        check_whole("max output tokens", self.max_output_tokens, 1, MAX_TOKENS)
        check_range("speed", self.speed, 1e-6, 1e6)

    def items(self, items: Iterable[WorkItem]) -> Iterator[WorkItem]:
        """The scaled items, one at a time."""
        for item in items:
            yield replace(
                item,
                arrival_s=None if item.arrival_s is None else item.arrival_s / self.speed,
                prompt=self._prompt(item.prompt),
                output_tokens=self._output(item.output_tokens),
            )

    def _prompt(self, prompt: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """The segments that fit, the last one cut."""
        left = self.max_prompt_tokens
        scaled = []
        for segment in prompt:
            if answered_index(segment) is None:
                num_tokens = _divided(segment.num_tokens, self.input_divisor)
            else:
                num_tokens = self._output(segment.num_tokens)  # as long as the answer it stands for
            num_tokens = min(num_tokens, left)
            if not num_tokens:
                break
            scaled.append(Segment(segment.segment_id, num_tokens))
            left -= num_tokens
        return tuple(scaled)

    def _output(self, num_tokens: int) -> int:
        return min(self.max_output_tokens, _divided(num_tokens, self.output_divisor))


def _divided(num_tokens: int, divisor: float) -> int:
    """Rounded up."""
    return int(-(-num_tokens // divisor))
