"""What every checkpoint offers, whatever its files look like: spec, tensors under canonical names, tokenizer source.

A checkpoint that exists is complete: each tensor the spec needs was found with the right shape, and nothing was found
that the spec has no place for. Tensors are views of memory maps; reading one costs what its pages cost.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from paceline.errors import CheckpointError
from paceline.models.spec import ModelSpec
from paceline.ops.protocol import HostTensor


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Files of a checkpoint directory that the text room reads; None where there is none."""

    tokenizer: Path | None
    tokenizer_config: Path | None
    generation_config: Path | None
    chat_template: Path | None


# A GGUF's metadata (keys tokenizer.*), or files.
TokenizerSource = Mapping[str, object] | TokenizerFiles


class Checkpoint(Protocol):
    """A model's files, opened and checked.

    `notes` are sentences about harmless oddities for the start-up summary, such as an ignored tensor.
    """

    path: Path
    spec: ModelSpec
    tokenizer_source: TokenizerSource
    notes: tuple[str, ...]

    def tensor(self, name: str) -> HostTensor:
        """The tensor of a canonical name. Query and key rows are in the order of pairs (i, i + half)."""
        ...


def require_tensors(
    spec: ModelSpec, found: Mapping[str, HostTensor], name_in_file: Callable[[str], str], where: Path
) -> dict[str, HostTensor]:
    """The spec's tensors under canonical names. Raises CheckpointError naming one that is missing or misshapen."""
    tensors = {}
    for name, (rows, columns) in spec.tensor_shapes().items():
        tensor = found.get(name_in_file(name))
        if tensor is None:
            raise CheckpointError(f"{where}: tensor {name_in_file(name)!r} is missing")
        if (tensor.num_rows, tensor.columns) != (rows, columns):
            raise CheckpointError(
                f"{where}: tensor {tensor.name!r} is {tensor.num_rows} x {tensor.columns}, must be {rows} x {columns}"
            )
        tensors[name] = tensor
    return tensors


def refuse_extra(names: Iterable[str], known: Iterable[str], where: Path) -> None:
    """Raise CheckpointError naming a tensor the model has no place for: its answer would differ from its author's."""
    extra = sorted(set(names) - set(known))
    if extra:
        raise CheckpointError(f"{where}: tensor {extra[0]!r} has no place in this model ({len(extra)} such)")
