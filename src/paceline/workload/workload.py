"""The one iterator: lengths, arrivals, prefix graph, sessions and a seed make the items, the same ones every time.

Randomness is `random.Random` of the standard library, one stream each for lengths, arrivals and sessions. (The
batching workload of the published tables draws the same distributions from NumPy's `default_rng`: equal in law, not in
digits.) The seed of the items and the seed of their tokens (`segment_tokens`) need not be the same: repeating one
schedule with fresh tokens is a new token seed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from random import Random

from paceline.errors import ConfigError
from paceline.workload.arrivals import Arrivals, Recorded
from paceline.workload.draws import stream
from paceline.workload.item import Segment, WorkItem
from paceline.workload.lengths import Lengths
from paceline.workload.prefixes import Prefix, Unshared
from paceline.workload.segments import answer_segment, new_segment
from paceline.workload.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Workload:
    """Who asks what, when. With sessions, each arrival begins a session, and its items follow one another directly."""

    lengths: Lengths
    arrivals: Arrivals
    prefix: Prefix = field(default_factory=Unshared)
    sessions: Sessions | None = None
    seed: int = 0

    def items(self, num_requests: int | None = None) -> Iterator[WorkItem]:
        """The first `num_requests` items, one at a time; a shorter run is the beginning of a longer one. None: without
        end, or until recorded arrivals end.

        Raises ConfigError at once when there are fewer recorded arrivals than asked for.
        """
        if num_requests is None:
            return self._all_items()
        if num_requests < 0:
            raise ConfigError(f"number of requests must not be negative, got {num_requests}")
        if isinstance(self.arrivals, Recorded) and self.sessions is None:
            num_times = len(self.arrivals.times_s)
            if num_requests > num_times:
                raise ConfigError(f"{num_requests} requests asked for, but only {num_times} arrivals are recorded")
        return islice(self._all_items(), num_requests)

    def _all_items(self) -> Iterator[WorkItem]:
        """Item after item, for ever (or until the recorded arrivals end)."""
        lengths, turns = stream(self.seed, "lengths"), stream(self.seed, "sessions")
        index = 0
        for unit, arrival_s in enumerate(self.arrivals.times(stream(self.seed, "arrivals"))):
            history: tuple[Segment, ...] = ()
            session_id = None if self.sessions is None else unit
            for turn, think_s in enumerate(self._think_times(turns)):
                input_tokens, output_tokens = self.lengths.draw(lengths)
                prompt = self._prompt(history, unit, index, input_tokens)
                item = WorkItem(index, arrival_s, prompt, output_tokens, session_id, turn, think_s)
                if turn and self.sessions and item.prompt_tokens > self.sessions.max_prompt_tokens:
                    break
                yield item
                if self.sessions and self.sessions.replays_history:
                    history = (*prompt, answer_segment(index, output_tokens))
                index += 1

    def _think_times(self, random: Random) -> Iterator[float]:
        """One entry a turn; an item outside sessions is a session of one turn."""
        return iter((0.0,)) if self.sessions is None else self.sessions.think_times(random)

    def _prompt(self, history: tuple[Segment, ...], unit: int, index: int, input_tokens: int) -> tuple[Segment, ...]:
        """History, or else the head of the prefix graph, and the new tokens."""
        shared, num_new = (history, input_tokens) if history else self.prefix.head(unit, input_tokens)
        return (*shared, new_segment(index, num_new)) if num_new else shared
