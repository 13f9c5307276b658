"""What the bytes of a checkpoint's tensors mean: block sizes of every kind, and their exact values.

Owns the storage formats (GGUF's, of which F32, F16 and BF16 are also safetensors'). Never used on a hot path:
native code unpacks its own weights; this is the check of it, and what the reference backend computes with.
Values are float64: a product of a 16-bit scale and integers of 13 bits together is exact there, and the sum of two
such products too unless their sizes differ by more than 2^29. Rounded once to float32 they equal what other
readers of these formats return.

Formats: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and the block structs of ggml-common.h.
A row is a whole number of blocks. Element order inside a block is what each function's first lines say.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from paceline.ops.protocol import HostTensor, TensorKind

Bytes = NDArray[np.uint8]
Values = NDArray[np.float64]

# kind -> (elements of a block, bytes of a block)
BLOCKS: dict[TensorKind, tuple[int, int]] = {
    TensorKind.F32: (1, 4),
    TensorKind.F16: (1, 2),
    TensorKind.BF16: (1, 2),
    TensorKind.Q4_0: (32, 18),
    TensorKind.Q4_1: (32, 20),
    TensorKind.Q5_0: (32, 22),
    TensorKind.Q5_1: (32, 24),
    TensorKind.Q8_0: (32, 34),
    TensorKind.Q4_K: (256, 144),
    TensorKind.Q5_K: (256, 176),
    TensorKind.Q6_K: (256, 210),
}


def row_bytes(kind: TensorKind, columns: int) -> int:
    """Bytes of a row of `columns` elements, which must be whole blocks."""
    elements, size = BLOCKS[kind]
    assert columns % elements == 0, f"{columns} columns are not whole blocks of {elements} ({kind})"
    return columns // elements * size


def dequantize(tensor: HostTensor) -> Values:
    """The tensor's exact values, float64 [num_rows, columns]; a copy."""
    _, size = BLOCKS[tensor.kind]
    blocks = np.ascontiguousarray(tensor.data).reshape(-1, size)
    return _DECODERS[tensor.kind](blocks).reshape(tensor.num_rows, tensor.columns)


def _float32(blocks: Bytes) -> Values:
    return blocks.view("<f4").astype(np.float64)


def _float16(blocks: Bytes) -> Values:
    return blocks.view("<f2").astype(np.float64)


def _bfloat16(blocks: Bytes) -> Values:
    widened = blocks.view("<u2").astype(np.uint32) << 16
    return widened.view(np.float32).astype(np.float64)


def _half(blocks: Bytes, offset: int) -> Values:
    """The 16-bit float at `offset` of each block, as a column."""
    return _float16(np.ascontiguousarray(blocks[:, offset : offset + 2]))


def _nibbles(packed: Bytes) -> Bytes:
    """[n, k] bytes to [n, 2k]: first every low half, then every high half."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _high_bits(packed: Bytes) -> Bytes:
    """Four bytes a block to 32 fifth bits, bit i for element i, already worth 16."""
    return np.unpackbits(packed, axis=1, bitorder="little") * np.uint8(16)


def _q4_0(blocks: Bytes) -> Values:
    # scale | 16 bytes of nibbles, offset 8
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float64) - 8)


def _q4_1(blocks: Bytes) -> Values:
    # scale | minimum | 16 bytes of nibbles
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Values:
    # scale | 4 bytes of fifth bits | 16 bytes of nibbles, offset 16
    quants = _nibbles(blocks[:, 6:]) | _high_bits(blocks[:, 2:6])
    return _half(blocks, 0) * (quants.astype(np.float64) - 16)


def _q5_1(blocks: Bytes) -> Values:
    # scale | minimum | 4 bytes of fifth bits | 16 bytes of nibbles
    return _half(blocks, 0) * (_nibbles(blocks[:, 8:]) | _high_bits(blocks[:, 4:8])) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Values:
    # scale | 32 signed bytes
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Twelve bytes to eight 6-bit scales and eight 6-bit minima.

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minima 0-3 in their low six bits; scale 4+i is the low half of byte 8+i
    under the two top bits of byte i, minimum 4+i its high half under those of byte 4+i.
    """
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=1)
    return scales, minima


def _scaled_groups(blocks: Bytes, quants: Bytes) -> Values:
    """Q4_K and Q5_K: eight groups of 32, each (d · scale) · q − (dmin · minimum)."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    group_scale = (_half(blocks, 0) * scales)[:, :, None]
    group_minimum = (_half(blocks, 2) * minima)[:, :, None]
    return group_scale * quants.reshape(-1, 8, 32) - group_minimum


def _q4_k(blocks: Bytes) -> Values:
    # d | dmin | 12 bytes of scales and minima | 4 x 32 bytes: low nibbles are one group, high nibbles the next
    quants = _nibbles(blocks[:, 16:].reshape(-1, 32))
    return _scaled_groups(blocks, quants)


def _q5_k(blocks: Bytes) -> Values:
    # as Q4_K with 32 bytes of fifth bits before the nibbles: bit g of byte i belongs to element i of group g
    nibbles = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 8, 32)
    fifth = np.unpackbits(blocks[:, 16:48, None], axis=2, bitorder="little").transpose(0, 2, 1)
    return _scaled_groups(blocks, nibbles | fifth * np.uint8(16))


def _q6_k(blocks: Bytes) -> Values:
    # 128 bytes of low nibbles | 64 bytes of high pairs | 16 signed scales | d.
    # Each half of 128 elements is four runs of 32: nibbles low(first 32 bytes), low(next), high(first), high(next);
    # the runs' top two bits are bit pairs 0, 1, 2, 3 of the half's 32 high bytes.
    low = _nibbles(blocks[:, :128].reshape(-1, 64)).reshape(-1, 2, 4, 32)
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    quants = (low | high << 4).reshape(-1, 16, 16).astype(np.float64) - 32
    scales = _half(blocks, 208) * np.ascontiguousarray(blocks[:, 192:208]).view(np.int8)
    return scales[:, :, None] * quants


_DECODERS: dict[TensorKind, Callable[[Bytes], Values]] = {
    TensorKind.F32: _float32,
    TensorKind.F16: _float16,
    TensorKind.BF16: _bfloat16,
    TensorKind.Q4_0: _q4_0,
    TensorKind.Q4_1: _q4_1,
    TensorKind.Q5_0: _q5_0,
    TensorKind.Q5_1: _q5_1,
    TensorKind.Q8_0: _q8_0,
    TensorKind.Q4_K: _q4_k,
    TensorKind.Q5_K: _q5_k,
    TensorKind.Q6_K: _q6_k,
}
