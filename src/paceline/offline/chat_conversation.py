"""A conversation with a model: turns so far, and what its answers took. Knows no terminal.

An answer that was stopped stays in the history as far as it came; a question without any answer does not.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from paceline.offline.chat_stream import Piece, Timing, stream_answer
from paceline.offline.endpoint import Endpoint


@dataclass(slots=True)
class Conversation:
    """`options`: fields of every request, the model among them."""

    endpoint: Endpoint
    options: Mapping[str, object]
    system: str | None = None
    turns: list[dict[str, str]] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)

    def ask(self, question: str, show: Callable[[Piece], None]) -> Timing:
        """Stream the answer through `show`. KeyboardInterrupt stops it and is raised again; PacelineError is the
        server's. Either way what came is kept.
        """
        system = [] if self.system is None else [{"role": "system", "content": self.system}]
        question_turn = {"role": "user", "content": question}
        messages = [*system, *self.turns, question_turn]
        timing = Timing(time.monotonic())
        answer = ""
        try:
            with closing(stream_answer(self.endpoint, messages, self.options, timing)) as pieces:
                for piece in pieces:
                    if not piece.is_reasoning:
                        answer += piece.text
                    show(piece)
        finally:
            if answer:
                self.turns += [question_turn, {"role": "assistant", "content": answer}]
            if timing.piece_times_s:
                self.timings.append(timing)
        return timing

    def reset(self) -> None:
        """Forget the turns; the system prompt stays."""
        self.turns.clear()

    def stats(self) -> str:
        """What all answers took, in a line."""
        if not self.timings:
            return "no answers yet"
        ttfts_s = [timing.ttft_s for timing in self.timings if timing.ttft_s is not None]
        paces = [timing.tokens_per_s for timing in self.timings if timing.tokens_per_s is not None]
        num_tokens = sum(timing.num_tokens for timing in self.timings)
        pace = f", median pace {statistics.median(paces):.1f} tokens/s" if paces else ""
        return (
            f"{len(self.timings)} answers, {num_tokens} tokens, median TTFT "
            f"{statistics.median(ttfts_s) * 1000:.0f} ms{pace}; {len(self.turns) // 2} turns are remembered"
        )


def told(timing: Timing) -> str:
    """One answer's timing in a line."""
    parts = []
    if timing.ttft_s is not None:
        parts.append(f"TTFT {timing.ttft_s * 1000:.0f} ms")
    parts.append(f"{timing.num_tokens} tokens")
    if timing.tokens_per_s is not None:
        parts.append(f"{timing.tokens_per_s:.1f} tokens/s")
    if timing.usage is not None:
        cached = timing.usage.prompt_tokens_details
        reused = f", {cached.cached_tokens} of them cached" if cached and cached.cached_tokens else ""
        parts.append(f"prompt {timing.usage.prompt_tokens} tokens{reused}")
    if timing.finish_reason == "length":
        parts.append("cut at the length limit")
    return " · ".join(parts)
