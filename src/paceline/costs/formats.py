"""How many bytes a stored number takes, its scales included: formats of weights and of the KV cache, by name.

Arithmetic stays what the hardware entry states: a format here changes what is read and kept, not how it is multiplied.
"""

from dataclasses import dataclass

from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Bytes a number takes on average. `note` says how they come about."""

    name: str
    bytes_per_number: float
    note: str


_WEIGHTS = (
    NumberFormat("float32", 4.0, "32 bits"),
    NumberFormat("bf16", 2.0, "16 bits"),
    NumberFormat("fp16", 2.0, "16 bits"),
    NumberFormat("fp8", 1.0, "8 bits; a scale a tensor or channel, too few to count"),
    NumberFormat("int8", 1.0, "8 bits; a scale an output, too few to count"),
    NumberFormat("q8_0", 34 / 32, "8 bits and a 16-bit scale for each 32"),
    NumberFormat("q6_k", 210 / 256, "6.56 bits: blocks of 256 with their scales"),
    NumberFormat("q5_k", 176 / 256, "5.5 bits: blocks of 256 with their scales"),
    NumberFormat("q4_k", 144 / 256, "4.5 bits: blocks of 256 with their scales"),
    NumberFormat("q4_1", 20 / 32, "4 bits, a 16-bit scale and minimum for each 32"),
    NumberFormat("q4_0", 18 / 32, "4 bits and a 16-bit scale for each 32"),
    NumberFormat("int4", 18 / 32, "4 bits and a 16-bit scale for each 32"),
    NumberFormat("awq", 0.5 + 2.5 / 128, "4 bits; a 16-bit scale and a 4-bit zero for each 128"),
    NumberFormat("gptq", 0.5 + 2.5 / 128, "4 bits; a 16-bit scale and a 4-bit zero for each 128"),
    NumberFormat("mxfp4", 17 / 32, "4 bits and an 8-bit exponent for each 32"),
    NumberFormat("nvfp4", 9 / 16, "4 bits and an 8-bit scale for each 16"),
)
WEIGHT_FORMATS = {entry.name: entry for entry in _WEIGHTS}
_KV_NAMES = ("float32", "bf16", "fp16", "fp8")
KV_FORMATS = {name: WEIGHT_FORMATS[name] for name in _KV_NAMES} | {
    "int8": NumberFormat("int8", 1 + 4 / 128, "8 bits, a 32-bit scale for each token and head, here of 128")
}
_SPELLINGS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp32": "float32",
    "w4a16": "awq",
    "q4_k_m": "q4_k",
}


def weight_format(name: str) -> NumberFormat:
    """Raises ConfigError with the names there are."""
    return _find("weight format", name, WEIGHT_FORMATS)


def kv_format(name: str) -> NumberFormat:
    """Raises ConfigError with the names there are."""
    return _find("KV format", name, KV_FORMATS)


def _find(what: str, name: str, known: dict[str, NumberFormat]) -> NumberFormat:
    key = _SPELLINGS.get(name.lower(), name.lower())
    if key not in known:
        raise ConfigError(f"{what} {name!r} is not known: {', '.join(known)}")
    return known[key]
