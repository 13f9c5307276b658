"""Seeded randomness: one independent stream per question, so that changing the arrivals leaves the lengths alone."""

from random import Random

# Sums of halves and powers of two: exact, and never 0 or 1, where quantile functions are infinite.
_UNIT_BITS = 52


def stream(seed: int, name: str) -> Random:
    """The stream called `name` of the workload with this seed; the same in every process."""
    return Random(f"{seed}/{name}")


def open_unit(random: Random) -> float:
    """Uniform in (0, 1), both ends excluded."""
    return float((random.getrandbits(_UNIT_BITS) + 0.5) * 2.0**-_UNIT_BITS)
