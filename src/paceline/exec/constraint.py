"""The grammars of running rows: which tokens may come next, which must, and whether anything may at all.

A token is *forced* when nothing else can follow: the grammar knows the next bytes, and their tokenization does not
depend on what comes after them. What is forced is decided once, right after the token before it, as a function of the
outputs so far. So the outputs are the same whether forced tokens are taken at once or one a step, and a row that comes
back after a preemption finds its place by walking its outputs again.

    outputs   {" name ":" B ob ", " age ": ...
              [forced)[sampled)[ forced   )          an object of two keys, each piece a token
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from paceline.core.plan import NewRow
from paceline.core.request import FinishReason, Grammar
from paceline.exec.grammar import GrammarCompiler, fill_mask, walk_forced

if TYPE_CHECKING:
    from llguidance import LLMatcher

Masks = NDArray[np.uint32]


class Constraint:
    """One row's matcher and the tokens it forces next. `end` is set once nothing can follow those."""

    def __init__(self, compiler: GrammarCompiler, grammar: Grammar, outputs: Iterable[int]) -> None:
        """Raises RequestError for a grammar that can't be compiled; whoever submitted it has made sure that it can."""
        self.end: FinishReason | None = None
        self._matcher: LLMatcher = compiler.matcher(grammar)
        self._eos_ids = compiler.eos_ids
        self._forced: deque[int] = deque()
        self._force()
        for token in outputs:
            self.take(token)

    @property
    def next_forced(self) -> int | None:
        """The token that comes next whatever the model says."""
        return self._forced[0] if self._forced else None

    def take(self, token: int) -> None:
        """The next output. What follows it by force is known afterwards."""
        if self._forced:
            assert self._forced.popleft() == token, "an output differs from what its grammar forced"
            return
        self._matcher.consume_token(token)
        if token in self._eos_ids:
            self.end = FinishReason.STOP
        else:
            self._force()

    def take_forced(self, most: int) -> tuple[int, ...]:
        """Up to `most` forced tokens, taken at once."""
        return tuple(self._forced.popleft() for _ in range(min(most, len(self._forced))))

    def fill(self, mask: Masks) -> bool:
        """Write which tokens may come next [ceil(V / 32)]. False, with `end` set, when the grammar has given out: it
        passed a limit of the library's, or its text can't be spelled in this vocabulary.
        """
        assert not self._forced, "a mask is asked for where the next token is forced"
        fill_mask(self._matcher, mask)
        if self._matcher.is_error() or not mask.any():
            self.end = FinishReason.ERROR
        return self.end is None

    def _force(self) -> None:
        self._forced.extend(walk_forced(self._matcher))
        if self._matcher.is_error():
            self.end = FinishReason.ERROR
        elif self._matcher.is_stopped():
            self.end = FinishReason.STOP
            self._forced.append(self._eos_ids[0])


class Constraints:
    """The constraints of all rows that have a grammar, by slot, and the masks of the step being drawn."""

    def __init__(self, compiler: GrammarCompiler, max_rows: int) -> None:
        self._compiler = compiler
        self._shape = (max_rows, compiler.num_mask_words)
        self._rows: dict[int, Constraint] = {}
        self._masks: Masks = np.empty((0, compiler.num_mask_words), np.uint32)
        self._num_masks = 0

    def __bool__(self) -> bool:
        return bool(self._rows)

    def get(self, row: int) -> Constraint | None:
        """The constraint of slot `row`; None where any token may come."""
        return self._rows.get(row)

    def enter(self, new: NewRow) -> None:
        """A sequence takes slot `new.row`, with the outputs it had before a preemption."""
        if new.sampling.grammar is not None:
            outputs = new.tokens[new.num_prompt_tokens :]
            self._rows[new.row] = Constraint(self._compiler, new.sampling.grammar, outputs)

    def leave(self, row: int) -> None:
        """The sequence in slot `row` is gone."""
        self._rows.pop(row, None)

    def begin_step(self) -> None:
        """Forget the masks of the last step."""
        self._num_masks = 0

    def fill(self, constraint: Constraint) -> int | None:
        """The index of a fresh mask of this step for the constraint; None when it has given out."""
        if not len(self._masks):
            self._masks = np.zeros(self._shape, np.uint32)
        if not constraint.fill(self._masks[self._num_masks]):
            return None
        self._num_masks += 1
        return self._num_masks - 1

    @property
    def masks(self) -> Masks:
        """The masks filled in this step [M, ceil(V / 32)]."""
        return self._masks[: self._num_masks]
