"""Safetensors files: a bounded parser of one file, and of the shards an index names.

Owns the file format only. We read the header ourselves because the library's NumPy view has no bfloat16, and because
it reads shards before anyone can see that one is missing. Files are hostile until parsed: nothing outside the
directory is opened and every tensor is known to lie in its file.

Layout: header length, 8 bytes | header, JSON: name -> {dtype, shape, data_offsets} | tensor data
Source: https://github.com/huggingface/safetensors#format
"""

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import numpy as np

from paceline.errors import CheckpointError
from paceline.ops.dequantize import row_bytes
from paceline.ops.protocol import HostTensor, TensorKind

MAX_HEADER_BYTES = 100_000_000
KINDS = {"F32": TensorKind.F32, "F16": TensorKind.F16, "BF16": TensorKind.BF16}
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_directory(directory: Path) -> dict[str, HostTensor]:
    """Every tensor of a checkpoint directory by its name in the files: the index decides if there is one."""
    if (directory / INDEX).exists():
        return _read_shards(directory)
    if not (directory / WHOLE).exists():
        raise CheckpointError(
            f"{directory} holds neither {WHOLE} nor {INDEX}; incomplete download? (Pickled weights are not read.)"
        )
    return read_safetensors(directory / WHOLE)


def _read_shards(directory: Path) -> dict[str, HostTensor]:
    index = directory / INDEX
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index}: weight_map is missing")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise CheckpointError(
                f"{index}: the file of {name!r} is {shard!r}, must be a plain file name *.safetensors"
            )
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if not (directory / shard).is_file()]
    if missing:
        raise CheckpointError(
            f"{directory / missing[0]} is missing ({len(missing)} of {len(shards)} shards); incomplete download?"
        )
    contents = {shard: read_safetensors(directory / shard) for shard in shards}
    tensors = {}
    for name, shard in weight_map.items():
        if name not in contents[shard]:
            raise CheckpointError(f"{directory / shard}: tensor {name!r} is missing, though {INDEX} says it is there")
        tensors[name] = contents[shard][name]
    return tensors


def read_json(path: Path) -> Mapping[str, object]:
    """A JSON object from a file. Raises CheckpointError."""
    try:
        values = json.loads(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} does not hold a JSON object")
    return values


def read_safetensors(path: Path) -> dict[str, HostTensor]:
    """Views of every tensor of one file."""
    try:
        with path.open("rb") as file:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise CheckpointError(f"{path} is empty; incomplete download?") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from None
    header_bytes = int.from_bytes(buffer[:8], "little")
    if header_bytes > min(MAX_HEADER_BYTES, len(buffer) - 8):
        _fail(path, f"its header has {header_bytes} bytes, the file {len(buffer)}")
    try:
        header = json.loads(buffer[8 : 8 + header_bytes])
    except (ValueError, RecursionError):
        _fail(path, "its header is not JSON")
    if not isinstance(header, dict):
        _fail(path, "its header is not an object")
    header.pop("__metadata__", None)
    data = np.frombuffer(buffer, np.uint8)[8 + header_bytes :]
    tensors = {name: _tensor(name, entry, data, path) for name, entry in header.items()}
    _refuse_overlap(header, path)
    return tensors


def _tensor(name: str, entry: object, data: "np.ndarray[tuple[int], np.dtype[np.uint8]]", path: Path) -> HostTensor:
    """A view of one tensor; more than two dimensions are flattened to rows."""
    if not isinstance(entry, dict):
        _fail(path, f"the entry of {name!r} is not an object")
    kind = KINDS.get(str(entry.get("dtype")))
    if kind is None:
        _fail(path, f"tensor {name!r} has dtype {entry.get('dtype')!r} ({', '.join(KINDS)} are supported)")
    shape, offsets = _integers(entry.get("shape"), low=1), _integers(entry.get("data_offsets"), low=0)
    if not shape or len(offsets) != 2:
        _fail(path, f"tensor {name!r} has shape {entry.get('shape')} and data_offsets {entry.get('data_offsets')}")
    start, end = offsets
    columns, num_rows = shape[-1], math.prod(shape[:-1])
    if end > len(data) or end - start != num_rows * row_bytes(kind, columns):
        _fail(path, f"tensor {name!r} does not lie in the file; incomplete download?")
    return HostTensor(name, kind, num_rows, columns, data[start:end].reshape(num_rows, -1))


def _integers(values: object, low: int) -> list[int]:
    """The list if it is one of integers from `low` on, else an empty one."""
    right = isinstance(values, list) and all(type(value) is int and value >= low for value in values)
    return values if isinstance(values, list) and right else []


def _refuse_overlap(header: Mapping[str, dict[str, list[int]]], path: Path) -> None:
    end, before = 0, ""
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["data_offsets"][0] < end:
            _fail(path, f"tensors {before!r} and {name!r} overlap")
        end, before = entry["data_offsets"][1], name


def _fail(path: Path, what: str) -> NoReturn:
    raise CheckpointError(f"{path} is not a valid safetensors file: {what}")
