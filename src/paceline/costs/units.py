"""Amounts of memory, never mixed: bytes are whole numbers in code, and a text names both units.

A GB is 10^9 bytes, a GiB 2^30: 7 % apart, which is more than a full card has to spare. Published answers mix them.
"""

GB = 10**9
GIB = 2**30


def sized(num_bytes: float) -> str:
    """Bytes as a person reads them, in both units: `537 GB (500 GiB)`."""
    return f"{_digits(num_bytes / GB)} GB ({_digits(num_bytes / GIB)} GiB)"


def timed(seconds: float) -> str:
    """A time as a person reads it: `8.71 ms`, `1.67 s`."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def counted(number: float) -> str:
    """A count with its unit prefix: `70.6 B`, `989 T`."""
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= scale:
            return f"{number / scale:.4g} {letter}"
    return f"{number:,.4g}"


def _digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
