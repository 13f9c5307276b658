"""What a model's files say: sizes, tensors, memory, tokenizer, and whether we serve it.

A model that we don't serve is described as far as its files can be read; `refusal` is the sentence with which the
loader turns it down. A file that can't be read at all raises that sentence.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.engine.loading import kv_token_bytes
from paceline.errors import CheckpointError
from paceline.models.checkpoint import Checkpoint
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.gguf import GgufFile, read_gguf
from paceline.models.gguf_checkpoint import GgufCheckpoint
from paceline.models.safetensors import read_directory, read_json
from paceline.models.spec import ModelSpec
from paceline.ops.protocol import HostTensor, KvFormat
from paceline.text.folder_tokenizer import folder_tokenizer, read_object
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.template import folder_template, gguf_template

# Our name of a size -> its key in a GGUF's metadata (behind the architecture's name), and in config.json.
SIZE_KEYS = {
    "num_layers": ("block_count", "num_hidden_layers"),
    "width": ("embedding_length", "hidden_size"),
    "num_heads": ("attention.head_count", "num_attention_heads"),
    "num_kv_heads": ("attention.head_count_kv", "num_key_value_heads"),
    "head_width": ("attention.key_length", "head_dim"),
    "ff_width": ("feed_forward_length", "intermediate_size"),
    "vocab_size": ("vocab_size", "vocab_size"),
    "max_context": ("context_length", "max_position_embeddings"),
}
LAYER_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
TOKENIZER_KINDS = {"gpt2": "byte-level BPE", "llama": "SentencePiece BPE"}


@dataclass(frozen=True, slots=True)
class TensorShare:
    """Tensors of one name, layer numbers aside, that are stored alike."""

    pattern: str
    kind: str
    num_tensors: int
    num_parameters: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class TextSide:
    """Tokenizer and chat template. `refusal`: why they can't be loaded."""

    tokenizer: str | None
    has_chat_template: bool
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Inspection:
    """One model. `sizes` has the keys of SIZE_KEYS that are known; `kv_token_bytes` is empty when we don't serve it."""

    path: Path
    format: str
    architecture: str | None
    sizes: Mapping[str, int]
    shares: tuple[TensorShare, ...]
    kv_token_bytes: Mapping[str, int]
    text: TextSide
    notes: tuple[str, ...]
    refusal: str | None

    @property
    def num_parameters(self) -> int:
        """Of all tensors in the files."""
        return sum(share.num_parameters for share in self.shares)

    @property
    def num_bytes(self) -> int:
        """Of all tensors in the files."""
        return sum(share.num_bytes for share in self.shares)

    def memory_bytes(self, kv_format: str, num_tokens: int) -> int:
        """Weights, and the KV cache of `num_tokens` tokens."""
        return self.num_bytes + num_tokens * self.kv_token_bytes[kv_format]


@dataclass(frozen=True, slots=True)
class _Files:
    """What was read. `opened`: the checkpoint, or the sentence that refuses it."""

    path: Path
    format: str
    architecture: object
    stated: Mapping[str, object]
    tensors: Iterable[HostTensor]
    text: TextSide
    opened: Checkpoint | str


def inspect_path(path: Path) -> Inspection:
    """A GGUF file or a checkpoint folder. Raises CheckpointError when it can't be read."""
    files = _read_folder(path) if path.is_dir() else _read_gguf(path)
    checkpoint, refusal = (None, files.opened) if isinstance(files.opened, str) else (files.opened, None)
    return Inspection(
        path=files.path,
        format=files.format,
        architecture=files.architecture if isinstance(files.architecture, str) else None,
        sizes=_sizes(files),
        shares=_shares(files.tensors),
        kv_token_bytes={} if checkpoint is None else _kv_token_bytes(checkpoint.spec),
        text=files.text,
        notes=() if checkpoint is None else checkpoint.notes,
        refusal=refusal or files.text.refusal,
    )


def _read_gguf(path: Path) -> _Files:
    file = read_gguf(path)
    architecture = file.metadata.get("general.architecture")
    stated = {name: file.metadata.get(f"{architecture}.{keys[0]}") for name, keys in SIZE_KEYS.items()}
    opened = _opened(lambda: GgufCheckpoint(file))
    return _Files(path, "GGUF", architecture, stated, file.tensors.values(), _gguf_text(file), opened)


def _read_folder(path: Path) -> _Files:
    config = read_json(path / "config.json")
    stated = {name: config.get(keys[1]) for name, keys in SIZE_KEYS.items()}
    opened = _opened(lambda: DirectoryCheckpoint(path))
    try:
        tensors = read_directory(path)
    except CheckpointError:  # `opened` says it
        tensors = {}
    return _Files(path, "safetensors", config.get("model_type"), stated, tensors.values(), _folder_text(path), opened)


def _opened(open_it: Callable[[], Checkpoint]) -> Checkpoint | str:
    try:
        return open_it()
    except CheckpointError as error:
        return error.message


def _gguf_text(file: GgufFile) -> TextSide:
    model, rule = file.metadata.get("tokenizer.ggml.model"), file.metadata.get("tokenizer.ggml.pre")
    name = TOKENIZER_KINDS.get(str(model), "unknown kind")
    kind = None if model is None else f"{name} ({model}, {rule or 'default'})"
    has_template = "tokenizer.chat_template" in file.metadata
    try:
        gguf_template(file.metadata, gguf_tokenizer(file.metadata))
    except CheckpointError as error:
        return TextSide(kind, has_template, error.message)
    return TextSide(kind, has_template)


def _folder_text(path: Path) -> TextSide:
    kind, has_template = None, False
    try:
        model = read_object(path / "tokenizer.json").get("model")
        kind = str(model.get("type")) if isinstance(model, dict) else None
        has_template = folder_template(path, folder_tokenizer(path)).source is not None
    except CheckpointError as error:
        return TextSide(kind, has_template, error.message)
    return TextSide(kind, has_template)


def _sizes(files: _Files) -> dict[str, int]:
    """The spec's sizes; without one, those that the files state as integers."""
    if not isinstance(files.opened, str):
        return {name: getattr(files.opened.spec, name) for name in SIZE_KEYS}
    return {name: value for name, value in files.stated.items() if type(value) is int}


def _shares(tensors: Iterable[HostTensor]) -> tuple[TensorShare, ...]:
    """One share for each name and kind, in the order of the files."""
    grouped: dict[tuple[str, str], list[HostTensor]] = {}
    for tensor in tensors:
        grouped.setdefault((LAYER_NUMBER.sub("*", tensor.name), tensor.kind.value), []).append(tensor)
    return tuple(
        TensorShare(
            pattern,
            kind,
            len(group),
            sum(tensor.num_rows * tensor.columns for tensor in group),
            sum(tensor.data.nbytes for tensor in group),
        )
        for (pattern, kind), group in grouped.items()
    )


def _kv_token_bytes(spec: ModelSpec) -> dict[str, int]:
    """Keys and values of one token in every layer, by how they are stored."""
    return {kv_format.value: kv_token_bytes(spec, kv_format) for kv_format in KvFormat}
