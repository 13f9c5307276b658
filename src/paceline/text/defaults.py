"""The sampling defaults a model was published with: used where a request says nothing.

A checkpoint folder has them in generation_config.json, a GGUF file under `general.sampling.*`. Only what a request
could ask for by itself is read; that a file says `do_sample` false, or how long answers should be, is not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from paceline.errors import CheckpointError
from paceline.text.folder_tokenizer import read_object

FOLDER_FILE = "generation_config.json"
GGUF_KEYS = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
MAX_TEMPERATURE = 100.0
MAX_REPETITION_PENALTY = 100.0
MAX_TOP_K = 2**31 - 1

# Field → (what it may be, said, and as a test).
RANGES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "temperature": (f"a number from 0 to {MAX_TEMPERATURE}", lambda value: 0 <= value <= MAX_TEMPERATURE),
    "top_k": ("a whole number, 0 or -1 for no limit", lambda value: -1 <= value <= MAX_TOP_K and value == int(value)),
    "top_p": ("a number above 0 and at most 1", lambda value: 0 < value <= 1),
    "min_p": ("a number from 0 to 1", lambda value: 0 <= value <= 1),
    "repetition_penalty": (
        f"a number above 0 and at most {MAX_REPETITION_PENALTY}",
        lambda value: 0 < value <= MAX_REPETITION_PENALTY,
    ),
}


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """A model's own defaults, named like the fields of a request; None where it has none."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def given(self) -> dict[str, Any]:
        """Those the model has."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in values if value is not None}


BUILT_IN = SamplingDefaults()


def folder_defaults(folder: Path) -> SamplingDefaults:
    """The defaults of a checkpoint folder. Raises CheckpointError for a value no request may have."""
    path = folder / FOLDER_FILE
    found = read_object(path)
    return SamplingDefaults(**{name: checked(found.get(name), name, f"{path}: {name}") for name in RANGES})


def gguf_defaults(metadata: Mapping[str, Any]) -> SamplingDefaults:
    """The defaults in a GGUF file's metadata. Raises CheckpointError for a value no request may have."""
    return SamplingDefaults(**{name: checked(metadata.get(key), name, key) for name, key in GGUF_KEYS.items()})


def checked(value: Any, name: str, where: str) -> Any:
    """The value, if a request could have it; null is absent."""
    if value is None:
        return None
    needed, is_right = RANGES[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_right(value):
        raise CheckpointError(f"{where} is {value!r}, must be {needed}; or start with --generation-config none")
    return int(value) if name == "top_k" else float(value)
