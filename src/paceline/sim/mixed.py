"""A number that looks drawn, as a function of another: for draws that must not depend on the order of events."""

from paceline.core.request import SEED_MASK


def mixed(number: int) -> int:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014): neighbours in, unrelated 64-bit numbers out."""
    number &= SEED_MASK
    number = (number ^ number >> 30) * 0xBF58_476D_1CE4_E5B9 & SEED_MASK
    number = (number ^ number >> 27) * 0x94D0_49BB_1331_11EB & SEED_MASK
    return number ^ number >> 31
