"""Our reading of every storage kind equals the gguf package's, to the bit, on random bytes."""

import gguf
import numpy as np
import pytest

from paceline.ops.dequantize import BLOCKS, dequantize, row_bytes
from paceline.ops.protocol import HostTensor, TensorKind


@pytest.mark.parametrize("kind", list(TensorKind))
def test_values_equal_the_gguf_package(kind: TensorKind) -> None:
    columns = 512
    data = np.random.default_rng(1).integers(0, 256, (64, row_bytes(kind, columns)), dtype=np.uint8)
    tensor = HostTensor("x", kind, 64, columns, data)
    with np.errstate(all="ignore"):
        ours = dequantize(tensor).astype(np.float32)
        theirs = gguf.dequantize(data, gguf.GGMLQuantizationType[kind.value])
    assert ours.shape == (64, columns)
    assert np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("kind", list(TensorKind))
def test_block_sizes_equal_the_gguf_package(kind: TensorKind) -> None:
    assert BLOCKS[kind] == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.value]]


def test_values_are_not_rounded_to_float32() -> None:
    """A Q4_1 value is a scale times a quant plus a minimum, which float32 can't always hold."""
    block = np.zeros((1, 20), np.uint8)
    block[0, 0:4] = np.array([2.0**-14, 1024.0 + 1.0], np.float16).view(np.uint8)
    block[0, 4] = 1
    assert dequantize(HostTensor("x", TensorKind.Q4_1, 1, 32, block))[0, 0] == 1025.0 + 2.0**-14


def test_a_view_with_gaps_is_read_rightly() -> None:
    data = np.arange(4 * 8, dtype=np.float32).reshape(4, 8)
    every_other = data.view(np.uint8)[::2]
    assert np.array_equal(dequantize(HostTensor("x", TensorKind.F32, 2, 8, every_other)), data[::2])
