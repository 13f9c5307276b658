"""From a pooled hidden state to the embedding a client gets: the first dimensions, scaled to length one."""

import math
from array import array
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VectorForm:
    """`dimensions` keeps so many of the first values (Kusupati et al. 2022), None all; scaling comes after that."""

    dimensions: int | None = None
    is_normalized: bool = True

    def apply(self, pooled: bytes) -> "array[float]":
        """The embedding, as float32, of a pooled state as the engine sent it. A zero state stays zero."""
        values = array("f", pooled)[: self.dimensions]
        length = math.hypot(*values)
        if not self.is_normalized or length == 0.0:
            return values
        return array("f", [value / length for value in values])
