"""Linear and the quantization before it give the same bits on every instruction set, extremes included."""

import numpy as np
import pytest
from numpy.typing import NDArray
from op_models import cpu_backend, float_tensor, run_tokens, same_bits
from test_conformance import random_tensor

from paceline.ops.cpu import instruction_sets
from paceline.ops.protocol import Backend, Float32Array, HostTensor, TensorKind

RNG = np.random.default_rng(17)


def products(isa: str, inputs: NDArray[np.floating], weight: HostTensor, precise: bool) -> Float32Array:
    bias = float_tensor(np.arange(weight.num_rows) / 7)

    def make(b: Backend):
        table, packed, added = b.weight([float_tensor(inputs)]), b.weight([weight]), b.vector(bias)
        return lambda ops: ops.linear(ops.embed(table), packed, added, precise=precise)

    return run_tokens(cpu_backend(isa), make, len(inputs))


def check_agreement(inputs: NDArray[np.floating], weight: HostTensor, precise: bool = False) -> None:
    plain = products("portable", inputs, weight, precise)
    for isa in instruction_sets():
        assert same_bits(products(isa, inputs, weight, precise), plain), isa


# Every number of rows up to two full blocks, and outputs that leave the last panel a part of a vector.
@pytest.mark.parametrize("num_rows", [*range(1, 14), 40])
@pytest.mark.parametrize("kind", [TensorKind.F32, TensorKind.BF16, TensorKind.Q4_0, TensorKind.Q4_1, TensorKind.Q6_K])
def test_any_number_of_rows(kind: TensorKind, num_rows: int) -> None:
    check_agreement(RNG.normal(size=(num_rows, 512)), random_tensor(kind, 75, 512))


@pytest.mark.parametrize("precise", [False, True])
@pytest.mark.parametrize("kind", list(TensorKind))
def test_any_kind_of_weight(kind: TensorKind, precise: bool) -> None:
    inputs = RNG.normal(size=(7, 768)) * 10.0 ** RNG.integers(-9, 9, (7, 1))
    check_agreement(inputs, random_tensor(kind, 32, 768), precise)


@pytest.mark.parametrize("kind", [TensorKind.Q4_0, TensorKind.Q5_1, TensorKind.Q8_0])
@pytest.mark.parametrize("number", [0x00, 0x7F, 0x80, 0xFF])
def test_the_largest_sums_there_are(kind: TensorKind, number: int) -> None:
    """Every number and activation at an end of its range: where 16 bits would overflow, or saturate, if they could."""
    weight = random_tensor(kind, 40, 256)
    small = weight.data.reshape(-1, weight.data.size // (40 * 8))
    small[:, 4 if kind == TensorKind.Q5_1 else 2 :] = number
    signs = np.stack([np.ones(256), -np.ones(256), np.tile([1, -1], 128), np.tile([1, 1, -1, -1], 64)])
    check_agreement(signs * 3, weight)


def test_rows_of_zeros_and_of_the_smallest_numbers() -> None:
    inputs = np.zeros((4, 256), np.float32)
    inputs[1, 5], inputs[2], inputs[3, 7] = 1e-38, 1e-31, -3e38
    check_agreement(inputs, random_tensor(TensorKind.Q4_1, 40, 256))


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_broken_activation_breaks_its_own_row_alone(broken: float) -> None:
    inputs = RNG.normal(size=(5, 256)).astype(np.float32)
    weight = random_tensor(TensorKind.Q4_1, 40, 256)
    whole = products("portable", inputs, weight, precise=False)
    inputs[2, 9] = broken
    for isa in instruction_sets():
        found = products(isa, inputs, weight, precise=False)
        assert np.isnan(found[2]).all()
        assert same_bits(np.delete(found, 2, 0), np.delete(whole, 2, 0)), isa
