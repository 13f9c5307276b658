"""A GGUF file as a checkpoint.

Owns what is peculiar to the format beyond its bytes: names, and the row order of queries and keys. Files of
architecture `llama` store each head's rows as pairs (2i, 2i + 1) where the model's author had (i, i + half); the rows
are put back in order here, on the quantized bytes (a row is whole blocks), so the rest of the house knows one order.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.models.checkpoint import TokenizerSource, refuse_extra, require_tensors
from paceline.models.families import gguf_name
from paceline.models.gguf import GgufFile, read_gguf
from paceline.models.gguf_metadata import FREQUENCY_DIVISORS, spec_from_metadata
from paceline.ops.protocol import HostTensor


class GgufCheckpoint:
    """A `Checkpoint`. Raises CheckpointError where the file and its own metadata disagree."""

    def __init__(self, file: GgufFile) -> None:
        self.path = file.path
        self.spec = spec_from_metadata(file)
        self.tokenizer_source: TokenizerSource = file.metadata
        self.notes: tuple[str, ...] = ()
        self._tensors = require_tensors(self.spec, file.tensors, gguf_name, file.path)
        used = [tensor.name for tensor in self._tensors.values()]
        refuse_extra(file.tensors, [*used, FREQUENCY_DIVISORS], file.path)

    def tensor(self, name: str) -> HostTensor:
        """A view; a copy for queries and keys."""
        tensor = self._tensors[name]
        if ".query." in name:
            return _halves_from_pairs(tensor, self.spec.num_heads)
        if ".key." in name:
            return _halves_from_pairs(tensor, self.spec.num_kv_heads)
        return tensor


def open_gguf(path: Path) -> GgufCheckpoint:
    """Parse the file and check it against its metadata."""
    return GgufCheckpoint(read_gguf(path))


def _halves_from_pairs(tensor: HostTensor, num_heads: int) -> HostTensor:
    """Rows (or a bias's elements) of each head: 0, 2, 4, ... then 1, 3, 5, ..."""
    items = tensor.data if tensor.num_rows > 1 else tensor.data.reshape(tensor.columns, -1)
    pairs = items.reshape(num_heads, -1, 2, items.shape[1])
    return replace(tensor, data=np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(tensor.data.shape))
