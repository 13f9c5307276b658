"""GGUF files: a bounded parser over a memory map.

Owns the file format only (header, metadata, tensor table); what the entries mean is `families.py`. A file is hostile
until parsed: every count, length, offset, type and product is checked against the bytes that are there and against a
limit before anything is allocated for it, so a damaged file costs one clear CheckpointError. Nothing is copied but
metadata; tensors are read-only views of the map.

Layout: magic | version | tensor count | entry count | entries | tensor table | padding | tensor data
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from paceline.errors import CheckpointError
from paceline.ops.dequantize import BLOCKS, row_bytes
from paceline.ops.protocol import HostTensor, TensorKind

MAX_ENTRIES = 4_096
MAX_TENSORS = 65_536
MAX_ARRAY_ITEMS = 1 << 22
MAX_KEY_BYTES = 65_535
MAX_NAME_BYTES = 256
MAX_STRING_BYTES = 1 << 24
MAX_DIMENSIONS = 4
MAX_DIMENSION = 1 << 40
MAX_ALIGNMENT = 1 << 16
DEFAULT_ALIGNMENT = 32

TENSOR_KINDS: dict[int, TensorKind] = {
    0: TensorKind.F32,
    1: TensorKind.F16,
    2: TensorKind.Q4_0,
    3: TensorKind.Q4_1,
    6: TensorKind.Q5_0,
    7: TensorKind.Q5_1,
    8: TensorKind.Q8_0,
    12: TensorKind.Q4_K,
    13: TensorKind.Q5_K,
    14: TensorKind.Q6_K,
    30: TensorKind.BF16,
}
# type id -> NumPy's name of a number
NUMBER_TYPES = {
    0: "u1",
    1: "i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
STRING_TYPE = 8
ARRAY_TYPE = 9

# What an entry holds: a scalar, a string, a list of strings, or a NumPy array of numbers.
MetadataValue = int | float | bool | str | list[str] | NDArray[np.generic]
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A parsed file. `tensors` are views of it under their own names, in file order."""

    path: Path
    metadata: Mapping[str, MetadataValue]
    tensors: Mapping[str, HostTensor]


@dataclass(frozen=True, slots=True)
class _TableEntry:
    """One line of the tensor table; `offset` counts from the start of the tensor data."""

    name: str
    kind: TensorKind
    num_rows: int
    columns: int
    offset: int

    @property
    def num_bytes(self) -> int:
        return self.num_rows * row_bytes(self.kind, self.columns)


def read_gguf(path: Path | str) -> GgufFile:
    """Map and parse a file. Raises CheckpointError for one that is missing, damaged, hostile or of an unknown kind."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise CheckpointError(f"{path} is empty") from None
    except OSError as error:
        raise CheckpointError(f"{path} can't be read: {error.strerror}") from None
    return parse_gguf(buffer, path)


def parse_gguf(buffer: bytes | mmap.mmap, path: Path) -> GgufFile:
    """Parse bytes that hold a whole file; `path` only names it in errors."""
    return _Parser(buffer, path).parse()


class _Parser:
    """A cursor over the file that never passes its end."""

    def __init__(self, buffer: bytes | mmap.mmap, path: Path) -> None:
        self.buffer = buffer
        self.path = path
        self.size = len(buffer)
        self.position = 0

    def parse(self) -> GgufFile:
        num_tensors, num_entries = self.header()
        metadata: dict[str, MetadataValue] = {}
        for _ in range(num_entries):
            key = self.string("a metadata key", MAX_KEY_BYTES)
            if key in metadata:
                self.fail(f"metadata key {key!r} appears twice")
            metadata[key] = self.value(key, self.u32(f"the type of {key!r}"))
        table = self.tensor_table(num_tensors)
        tensors = self.tensors(table, self.alignment(metadata))
        return GgufFile(self.path, MappingProxyType(metadata), MappingProxyType(tensors))

    def header(self) -> tuple[int, int]:
        """Tensor and entry counts, after magic and version."""
        if self.take(4, "the magic number") != b"GGUF":
            self.fail("it does not start with 'GGUF'")
        version = self.u32("the version")
        if version not in (2, 3):
            self.fail(f"version {version} is not supported (2 and 3, little-endian, are)")
        num_tensors = self.u64("the tensor count")
        num_entries = self.u64("the metadata count")
        self.check("the tensor count", num_tensors, MAX_TENSORS)
        self.check("the metadata count", num_entries, MAX_ENTRIES)
        return num_tensors, num_entries

    def value(self, key: str, kind: int) -> MetadataValue:
        if kind == STRING_TYPE:
            return self.string(repr(key), MAX_STRING_BYTES)
        if kind == ARRAY_TYPE:
            return self.array(key)
        if kind not in NUMBER_TYPES:
            self.fail(f"metadata key {key!r} has unknown type {kind}")
        dtype = np.dtype(NUMBER_TYPES[kind])
        number: int | float | bool = np.frombuffer(self.take(dtype.itemsize, repr(key)), dtype)[0].item()
        return number

    def array(self, key: str) -> list[str] | NDArray[np.generic]:
        kind = self.u32(f"the element type of {key!r}")
        length = self.u64(f"the length of {key!r}")
        self.check(f"the length of {key!r}", length, MAX_ARRAY_ITEMS)
        if kind == STRING_TYPE:
            return self.strings(key, length)
        if kind not in NUMBER_TYPES:
            what = "is an array of arrays" if kind == ARRAY_TYPE else f"has unknown element type {kind}"
            self.fail(f"metadata key {key!r} {what}")
        dtype = np.dtype(NUMBER_TYPES[kind])
        return np.frombuffer(self.take(length * dtype.itemsize, repr(key)), dtype)

    def strings(self, key: str, length: int) -> list[str]:
        """A vocabulary has hundreds of thousands of these, hence a loop over locals rather than calls of `string`."""
        buffer, size, position, unpack = self.buffer, self.size, self.position, U64.unpack_from
        if length * U64.size > size - position:
            self.fail(f"{key!r} ends past the end of the file")
        result = []
        try:
            for _ in range(length):
                start = position + 8
                position = start + unpack(buffer, position)[0]
                if position > size:
                    self.fail(f"a string of {key!r} ends past the end of the file")
                result.append(buffer[start:position].decode())
        except UnicodeDecodeError:
            self.fail(f"a string of {key!r} is not UTF-8")
        except struct.error:
            self.fail(f"{key!r} ends past the end of the file")
        self.position = position
        return result

    def tensor_table(self, num_tensors: int) -> dict[str, _TableEntry]:
        table: dict[str, _TableEntry] = {}
        for _ in range(num_tensors):
            entry = self.table_entry()
            if entry.name in table:
                self.fail(f"tensor {entry.name!r} appears twice")
            table[entry.name] = entry
        return table

    def table_entry(self) -> _TableEntry:
        name = self.string("a tensor name", MAX_NAME_BYTES)
        num_dimensions = self.u32(f"the dimensions of {name!r}")
        if not 1 <= num_dimensions <= MAX_DIMENSIONS:
            self.fail(f"tensor {name!r} has {num_dimensions} dimensions (1 to {MAX_DIMENSIONS} are possible)")
        dimensions = [self.u64(f"a dimension of {name!r}") for _ in range(num_dimensions)]
        if not all(1 <= dimension <= MAX_DIMENSION for dimension in dimensions):
            self.fail(f"tensor {name!r} has impossible dimensions {dimensions}")
        kind = TENSOR_KINDS.get(type_id := self.u32(f"the type of {name!r}"))
        if kind is None:
            supported = ", ".join(TENSOR_KINDS.values())
            self.fail(f"tensor {name!r} has type {type_id}, which is not supported ({supported} are)")
        columns, num_rows = dimensions[0], 1
        for dimension in dimensions[1:]:
            num_rows *= dimension
        if columns % BLOCKS[kind][0] != 0:
            self.fail(f"tensor {name!r} has rows of {columns}, not whole blocks of {BLOCKS[kind][0]} ({kind})")
        return _TableEntry(name, kind, num_rows, columns, self.u64(f"the offset of {name!r}"))

    def alignment(self, metadata: Mapping[str, MetadataValue]) -> int:
        value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(value, int) or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
            self.fail(f"general.alignment is {value!r} (a power of two from 8 to {MAX_ALIGNMENT} is needed)")
        return value

    def tensors(self, table: Mapping[str, _TableEntry], alignment: int) -> dict[str, HostTensor]:
        """Views of the data, once every tensor is known to lie in the file and on bytes of its own."""
        data_start = -(-self.position // alignment) * alignment
        end, before = 0, "the start"
        for entry in sorted(table.values(), key=lambda entry: entry.offset):
            if entry.offset % alignment:
                self.fail(f"tensor {entry.name!r} is at offset {entry.offset}, not a multiple of {alignment}")
            if entry.offset < end:
                self.fail(f"tensors {before!r} and {entry.name!r} overlap")
            end, before = entry.offset + entry.num_bytes, entry.name
            if data_start + end > self.size:
                self.fail(f"tensor {entry.name!r} ends past the end of the file; incomplete download?")
        whole = np.frombuffer(self.buffer, np.uint8)
        views = {}
        for entry in table.values():
            start = data_start + entry.offset
            data = whole[start : start + entry.num_bytes].reshape(entry.num_rows, -1)
            views[entry.name] = HostTensor(entry.name, entry.kind, entry.num_rows, entry.columns, data)
        return views

    def u32(self, what: str) -> int:
        result: int = U32.unpack(self.take(4, what))[0]
        return result

    def u64(self, what: str) -> int:
        result: int = U64.unpack(self.take(8, what))[0]
        return result

    def string(self, what: str, limit: int) -> str:
        length = self.u64(f"the length of {what}")
        self.check(f"the length of {what}", length, limit)
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8")

    def take(self, num_bytes: int, what: str) -> bytes:
        """The next bytes, which must be in the file."""
        start, end = self.position, self.position + num_bytes
        if end > self.size:
            self.fail(f"{what} ends past the end of the file")
        self.position = end
        return self.buffer[start:end]

    def check(self, what: str, value: int, limit: int) -> None:
        if value > limit:
            self.fail(f"{what} is {value} (at most {limit} is possible)")

    def fail(self, what: str) -> NoReturn:
        raise CheckpointError(f"{self.path} is not a valid GGUF file: {what}")
