"""Amounts of memory, never mixed: bytes are whole numbers in code, and a text names both units.

A GB is 10^9 bytes, a GiB 2^30: 7 % apart, which is more than a full card has to spare. Published answers mix them.
"""

GB = 10**9
GIB = 2**30


def sized(num_bytes: float) -> str:
    """Bytes as a person reads them, in both units: `537 GB (500 GiB)`."""
    return f"{digits(num_bytes / GB)} GB ({digits(num_bytes / GIB)} GiB)"


def timed(seconds: float) -> str:
    """A time as a person reads it: `8.71 ms`, `1.67 s`."""
    return f"{digits(seconds * 1e3)} ms" if seconds < 0.9995 else f"{digits(seconds)} s"


def counted(number: float) -> str:
    """A count with its unit prefix: `70.6 B`, `989 T`."""
    for scale, letter in ((1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= scale:
            return f"{digits(number / scale, 4)} {letter}"
    return f"{number:,.0f}"


def digits(value: float, num_digits: int = 3) -> str:
    """A number with so many digits that matter, and never as a power of ten above: `0.412`, `25.5`, `38,022`."""
    return f"{value:,.0f}" if value >= 10.0 ** (num_digits - 1) else f"{value:.{num_digits}g}"
