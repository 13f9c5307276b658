"""Stop strings: where a text ends because the user said so, found while the text still arrives.

The text is cut before the occurrence that *starts* first, as if the whole text had been searched at once; how it is cut
into deltas never shows. Two things follow. Characters that could begin a stop string are held back until they can't.
And with stops "bc" and "abcd", the text "abc" has an occurrence at 1 but may yet have one at 0, so the decision waits
for one more character.

All stops are matched in one pass by an automaton (Aho & Corasick 1975): its state is the longest end of the text that
begins a stop, so its depth is exactly what must be held back.

    stops   "two three", "three four"
    text    one two th        state: "two th", depth 6, so "one " is shown
    text    one two through   state: "", so all of it is shown
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import RequestError

MAX_STOPS = 16
MAX_STOP_CHARS = 1024


class StopStrings:
    """The stops of a request, ready to scan any number of its texts. Immutable."""

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        """`include_stop` keeps the stop string at the end of the text.

        Raises RequestError for too many, too long or empty stop strings.
        """
        if len(stops) > MAX_STOPS:
            raise RequestError(f"at most {MAX_STOPS} stop strings, got {len(stops)}", "stop")
        for stop in stops:
            if not 1 <= len(stop) <= MAX_STOP_CHARS:
                raise RequestError(f"a stop string has 1 to {MAX_STOP_CHARS} characters, got {len(stop)}", "stop")
        self.include_stop = include_stop
        self._next: list[dict[str, int]] = [{}]
        self._fallback = [0]
        self.depth = [0]
        # Length of the longest stop that ends in a state; 0 for none.
        self.match_length = [0]
        for stop in stops:
            self._insert(stop)
        self._link()

    @property
    def is_empty(self) -> bool:
        """No stops at all."""
        return len(self.depth) == 1

    def step(self, state: int, character: str) -> int:
        """The state after one more character; constant time, amortised over a text."""
        while (target := self._next[state].get(character)) is None:
            if state == 0:
                return 0
            state = self._fallback[state]
        return target

    def _insert(self, stop: str) -> None:
        state = 0
        for character in stop:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match_length.append(0)
            state = self._next[state][character]
        self.match_length[state] = len(stop)

    def _link(self) -> None:
        """Point each state at the longest shorter end that begins a stop; breadth first, so that those are done."""
        queue = list(self._next[0].values())
        for state in queue:
            for character, child in self._next[state].items():
                self._fallback[child] = self.step(self._fallback[state], character)
                queue.append(child)
            self.match_length[state] = self.match_length[state] or self.match_length[self._fallback[state]]


@dataclass(frozen=True, slots=True)
class StopMatch:
    """An occurrence: text[start:end] of the scanned text is `stop`."""

    start: int
    end: int
    stop: str


class StopScanner:
    """One text on its way past the stops. `match` is set when, and only when, the text has ended at one."""

    def __init__(self, stops: StopStrings) -> None:
        self._stops = stops
        self._state = 0
        self._held = ""
        self._emitted = 0
        self._candidate: tuple[int, int] | None = None
        self.match: StopMatch | None = None

    def push(self, delta: str) -> str:
        """Take more text; return what can be shown for certain. After a match nothing more may be pushed."""
        assert self.match is None, "text pushed past a stop string"
        if self._stops.is_empty:
            self._emitted += len(delta)
            return delta
        position = self._emitted + len(self._held)
        self._held += delta
        for character in delta:
            position += 1
            if self._decided(character, position):
                return self._end()
        safe = position - self._stops.depth[self._state]
        return self._emit(safe if self._candidate is None else min(safe, self._candidate[0]))

    def flush(self) -> str:
        """The end of the text: show what was held back, up to a stop if one is there."""
        return self._emit(self._emitted + len(self._held)) if self._candidate is None else self._end()

    @property
    def num_emitted(self) -> int:
        """Characters shown so far."""
        return self._emitted

    def _decided(self, character: str, position: int) -> bool:
        """Follow one character; True when the first occurrence is certain: nothing alive starts before it."""
        self._state = self._stops.step(self._state, character)
        length = self._stops.match_length[self._state]
        if length and (self._candidate is None or position - length < self._candidate[0]):
            self._candidate = (position - length, position)
        return self._candidate is not None and position - self._stops.depth[self._state] >= self._candidate[0]

    def _end(self) -> str:
        assert self._candidate is not None
        start, end = self._candidate
        self.match = StopMatch(start, end, self._held[start - self._emitted : end - self._emitted])
        return self._emit(end if self._stops.include_stop else start)

    def _emit(self, upto: int) -> str:
        text = self._held[: upto - self._emitted]
        self._held = self._held[upto - self._emitted :]
        self._emitted = upto
        return text
