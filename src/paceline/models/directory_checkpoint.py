"""A directory with config.json and safetensors files as a checkpoint."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from paceline.errors import CheckpointError
from paceline.models.checkpoint import TokenizerFiles, TokenizerSource, refuse_extra, require_tensors
from paceline.models.config_json import spec_from_config
from paceline.models.families import config_name
from paceline.models.safetensors import read_directory, read_json
from paceline.ops.protocol import HostTensor

# Buffers that old exporters saved; their values follow from the config.
DERIVED_SUFFIXES = (".rotary_emb.inv_freq",)


class DirectoryCheckpoint:
    """A `Checkpoint`. Raises CheckpointError where a file is missing, or the tensors are not those of the config."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / "config.json").is_file():
            raise CheckpointError(f"{path} holds no config.json; incomplete download, or not a checkpoint directory?")
        self.spec = spec_from_config(read_json(path / "config.json"), str(path / "config.json"))
        self.tokenizer_source: TokenizerSource = _tokenizer_files(path)
        found = read_directory(path)
        self._tensors = require_tensors(self.spec, found, config_name, path)
        self.notes = self._notes(found)
        derived = [name for name in found if name.endswith(DERIVED_SUFFIXES)]
        used = [tensor.name for tensor in self._tensors.values()]
        ignored_head = [config_name("head.weight")] if self.spec.tied_embeddings else []
        refuse_extra(found, [*used, *derived, *ignored_head], path)

    def tensor(self, name: str) -> HostTensor:
        """A view."""
        return self._tensors[name]

    def _notes(self, found: Mapping[str, HostTensor]) -> tuple[str, ...]:
        """The config says tied and is obeyed; a head of its own in the files is ignored, worth a word if it differs."""
        name = config_name("head.weight")
        head, embedding = found.get(name), self._tensors["embedding.weight"]
        if not self.spec.tied_embeddings or head is None or np.array_equal(head.data, embedding.data):
            return ()
        return (f"{name} differs from the embedding and is ignored: config.json ties them (tie_word_embeddings)",)


def _tokenizer_files(path: Path) -> TokenizerFiles:
    def existing(name: str) -> Path | None:
        return path / name if (path / name).is_file() else None

    return TokenizerFiles(
        tokenizer=existing("tokenizer.json"),
        tokenizer_config=existing("tokenizer_config.json"),
        generation_config=existing("generation_config.json"),
        chat_template=existing("chat_template.jinja"),
    )
