"""How long prompts and answers are: two distributions, and how the two hang together."""

import math
from dataclasses import dataclass
from random import Random

from paceline.workload.checks import check_range
from paceline.workload.distributions import STANDARD_NORMAL, Distribution, whole_at
from paceline.workload.draws import open_unit

# The nearest numbers to 0 and 1 a quantile function is asked for.
_EDGE = 2.0**-53


@dataclass(frozen=True, slots=True)
class Lengths:
    """`spearman`: rank correlation of input and output lengths, made by a Gaussian copula (both margins are kept)."""

    input: Distribution
    output: Distribution
    spearman: float = 0.0

    def __post_init__(self) -> None:
        check_range("spearman", self.spearman, -1, 1)

    def draw(self, random: Random) -> tuple[int, int]:
        """(input tokens, output tokens), at least 1 each; always two numbers from the stream."""
        u_input, u_output = open_unit(random), open_unit(random)
        if self.spearman:
            u_output = correlated(u_input, u_output, self.spearman)
        return whole_at(self.input, u_input), whole_at(self.output, u_output)


def correlated(u: float, independent_u: float, spearman: float) -> float:
    """A uniform number with this rank correlation to `u`."""
    pearson = 2 * math.sin(math.pi * spearman / 6)  # of the normals behind the two ranks
    rest = math.sqrt(max(0.0, 1 - pearson * pearson))
    z = pearson * STANDARD_NORMAL.inv_cdf(u) + rest * STANDARD_NORMAL.inv_cdf(independent_u)
    return min(1 - _EDGE, max(_EDGE, STANDARD_NORMAL.cdf(z)))
