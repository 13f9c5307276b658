"""A small valid GGUF file, and hostile ones made from it by changing bytes: name -> (bytes, what the error says)."""

import struct
from typing import Any

U32, F32, STRING, ARRAY, U8, I32 = 4, 6, 8, 9, 0, 5
WIDTH, FF_WIDTH, VOCABULARY = 32, 32, 4
NUMBER_FORMATS = {U32: "I", F32: "f", U8: "B", I32: "i"}

Entry = tuple[str, int, Any]  # key, type, value; an array's value is (element type, items)
Tensor = tuple[str, list[int], int, int]  # name, dimensions, type id, offset


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def encoded(kind: int, value: Any) -> bytes:
    if kind == STRING:
        return text(value)
    if kind == ARRAY:
        element, items = value
        return struct.pack("<IQ", element, len(items)) + b"".join(encoded(element, item) for item in items)
    return struct.pack("<" + NUMBER_FORMATS[kind], value)


ENTRIES: list[Entry] = [
    ("general.architecture", STRING, "llama"),
    ("general.alignment", U32, 32),
    ("llama.block_count", U32, 1),
    ("llama.context_length", U32, 64),
    ("llama.embedding_length", U32, WIDTH),
    ("llama.feed_forward_length", U32, FF_WIDTH),
    ("llama.attention.head_count", U32, 2),
    ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
    ("llama.vocab_size", U32, VOCABULARY),
    ("tokenizer.ggml.tokens", ARRAY, (STRING, ["a", "b", "c", "d"])),
    ("tokenizer.ggml.scores", ARRAY, (F32, [0.0] * VOCABULARY)),
    ("tokenizer.ggml.token_type", ARRAY, (I32, [1] * VOCABULARY)),
]
SHAPES = {
    "token_embd.weight": [WIDTH, VOCABULARY],
    "blk.0.attn_norm.weight": [WIDTH],
    "blk.0.attn_q.weight": [WIDTH, WIDTH],
    "blk.0.attn_k.weight": [WIDTH, WIDTH],
    "blk.0.attn_v.weight": [WIDTH, WIDTH],
    "blk.0.attn_output.weight": [WIDTH, WIDTH],
    "blk.0.ffn_norm.weight": [WIDTH],
    "blk.0.ffn_gate.weight": [WIDTH, FF_WIDTH],
    "blk.0.ffn_up.weight": [WIDTH, FF_WIDTH],
    "blk.0.ffn_down.weight": [FF_WIDTH, WIDTH],
    "output_norm.weight": [WIDTH],
}


def valid_tensors() -> list[Tensor]:
    """Vectors as F32, matrices as Q8_0, one after the other."""
    tensors, offset = [], 0
    for name, dimensions in SHAPES.items():
        is_matrix = len(dimensions) == 2
        tensors.append((name, dimensions, 8 if is_matrix else 0, offset))
        num_bytes = dimensions[1] * WIDTH // 32 * 34 if is_matrix else WIDTH * 4
        offset += -(-num_bytes // 32) * 32
    return tensors


def file_bytes(
    entries: list[Entry] = ENTRIES, tensors: list[Tensor] | None = None, num_entries: int | None = None
) -> bytes:
    tensors = valid_tensors() if tensors is None else tensors
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries) if num_entries is None else num_entries)
    for key, kind, value in entries:
        head += text(key) + struct.pack("<I", kind) + encoded(kind, value)
    for name, dimensions, kind, offset in tensors:
        head += text(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += struct.pack("<IQ", kind, offset)
    head += bytes(-len(head) % 32)
    name, dimensions, _, offset = valid_tensors()[-1]
    return head + bytes(offset + WIDTH * 4)


def with_entry(key: str, kind: int, value: Any) -> bytes:
    return file_bytes([(k, kind, value) if k == key else (k, t, v) for k, t, v in ENTRIES])


def with_tensor(index: int, **changes: Any) -> bytes:
    tensors = valid_tensors()
    tensors[index] = tuple(
        {**dict(zip(("name", "dims", "kind", "offset"), tensors[index], strict=True)), **changes}.values()
    )  # type: ignore[assignment]
    return file_bytes(tensors=tensors)


def with_num_dimensions(num_dimensions: int) -> bytes:
    data = file_bytes()
    place = data.index(text("token_embd.weight")) + len(text("token_embd.weight"))
    return data[:place] + struct.pack("<I", num_dimensions) + data[place + 4 :]


def with_string_length(length: int) -> bytes:
    data = file_bytes()
    place = data.index(text("llama"))
    return data[:place] + struct.pack("<Q", length) + data[place + 8 :]


def with_nested_arrays(depth: int) -> bytes:
    nested = struct.pack("<IQ", ARRAY, 1) * depth
    key = text("tokenizer.ggml.tokens") + struct.pack("<I", ARRAY)
    data = file_bytes()
    place = data.index(key) + len(key)
    return data[:place] + nested + data[place:]


HOSTILE: dict[str, tuple[bytes, str]] = {
    "10^6 dimensions": (with_num_dimensions(10**6), "dimensions"),
    "0xFFFFFFFF dimensions": (with_num_dimensions(0xFFFFFFFF), "dimensions"),
    "no dimensions": (with_num_dimensions(0), "dimensions"),
    "dimensions whose product wraps 2^64": (with_tensor(2, dims=[1 << 32, 1 << 32]), "end of the file"),
    "dimensions whose product wraps to the right size": (with_tensor(2, dims=[32, (1 << 59) + 32]), "dimensions"),
    "a dimension of 0": (with_tensor(2, dims=[32, 0]), "dimensions"),
    "string length 2^40": (with_string_length(1 << 40), "general.architecture"),
    "string length past the end": (with_string_length(1 << 20), "end of the file"),
    "arrays nested 10^4 deep": (with_nested_arrays(10**4), "array of arrays"),
    "alignment 2^30": (with_entry("general.alignment", U32, 1 << 30), "alignment"),
    "alignment 0": (with_entry("general.alignment", U32, 0), "alignment"),
    "alignment 3": (with_entry("general.alignment", U32, 3), "alignment"),
    "alignment of another type": (with_entry("general.alignment", STRING, "32"), "alignment"),
    "2^60 entries": (file_bytes(num_entries=1 << 60), "metadata count"),
    "offset past the end": (with_tensor(4, offset=1 << 30), "end of the file"),
    "offset at 2^64 - 32": (with_tensor(4, offset=(1 << 64) - 32), "end of the file"),
    "offset not aligned": (with_tensor(10, offset=valid_tensors()[10][3] + 4), "multiple of"),
    "two tensors on the same bytes": (with_tensor(4, offset=valid_tensors()[3][3]), "overlap"),
    "the same tensor name twice": (with_tensor(4, name="blk.0.attn_k.weight"), "twice"),
    "unknown quantisation type": (with_tensor(2, kind=99), "type 99"),
    "a row that is no whole block": (with_tensor(2, dims=[16, 64]), "whole blocks"),
    "scores declared as uint8": (with_entry("tokenizer.ggml.scores", ARRAY, (U8, [0] * VOCABULARY)), "scores"),
    "tokens that are numbers": (with_entry("tokenizer.ggml.tokens", ARRAY, (U8, [0] * VOCABULARY)), "tokens"),
    "more tokens than rows": (with_entry("tokenizer.ggml.tokens", ARRAY, (STRING, ["x"] * 5)), "tokens"),
    "vocabulary size other than the embedding's": (with_entry("llama.vocab_size", U32, 5), "vocab_size"),
    "duplicate keys": (file_bytes([*ENTRIES, ENTRIES[2]]), "twice"),
    "2^31 layers": (with_entry("llama.block_count", U32, 1 << 31), "num_layers"),
    "2^31 positions": (with_entry("llama.context_length", U32, 1 << 31), "max_context"),
    "no heads": (with_entry("llama.attention.head_count", U32, 0), "num_heads"),
    "heads as an array": (with_entry("llama.attention.head_count", ARRAY, (U32, [2])), "head_count"),
    "epsilon that is no number": (with_entry("llama.attention.layer_norm_rms_epsilon", F32, float("nan")), "epsilon"),
    "a name that is not UTF-8": (file_bytes().replace(b"output_norm", b"output_\xff\xffrm"), "UTF-8"),
    "a tensor missing": (file_bytes(tensors=valid_tensors()[:-1]), "output_norm.weight"),
    "a tensor too many": (with_tensor(1, name="blk.0.attn_wrong.weight"), "attn_norm.weight"),
    "cut in the middle of the data": (file_bytes()[:-64], "end of the file"),
    "cut in the middle of the table": (file_bytes()[:700], "end of the file"),
    "another magic": (b"GGML" + file_bytes()[4:], "GGUF"),
    "another version": (b"GGUF" + struct.pack("<I", 1) + file_bytes()[8:], "version 1"),
    "empty": (b"", "empty"),
}
