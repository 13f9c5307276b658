"""int8 with one scale an output, against the same arithmetic in float64."""

import numpy as np
import pytest
from numpy.typing import NDArray
from op_models import CPU_BACKENDS, cpu_backend, float_tensor, run_tokens, same_bits
from test_conformance import random_tensor

from paceline.errors import CheckpointError, ConfigError
from paceline.ops.cpu import CpuBackend, instruction_sets
from paceline.ops.dequantize import dequantize
from paceline.ops.protocol import Backend, HostTensor, TensorKind

RNG = np.random.default_rng(5)
KINDS = [TensorKind.F32, TensorKind.BF16, TensorKind.Q4_1, TensorKind.Q8_0, TensorKind.Q4_K, TensorKind.Q6_K]


def rounded(rows: NDArray[np.float32], group: int) -> NDArray[np.float64]:
    """Each run of `group` as multiples of a 127th of its largest; which multiple is decided in float32, as there."""
    groups = rows.reshape(len(rows), -1, group)
    largest = np.abs(groups).max(-1, keepdims=True)
    numbers = np.rint(groups * (np.float32(127) / largest))
    return (numbers * largest.astype(np.float64) / 127).reshape(rows.shape)


def product(backend: Backend, inputs: NDArray[np.floating], weight: HostTensor) -> NDArray[np.float32]:
    exact = CpuBackend(1, backend.isa)

    def make(b: Backend):
        table, packed = exact.weight([float_tensor(inputs)]), b.weight([weight])
        return lambda ops: ops.linear(ops.embed(table), packed)

    return run_tokens(backend, make, len(inputs))


@pytest.mark.parametrize(("isa", "num_threads"), CPU_BACKENDS)
@pytest.mark.parametrize("depth", [256, 768])
@pytest.mark.parametrize("kind", KINDS)
def test_a_linear_is_that_of_the_rounded_weights(isa: str, num_threads: int, depth: int, kind: TensorKind) -> None:
    backend = cpu_backend(isa, num_threads, per_channel=True)
    weight, inputs = random_tensor(kind, 75, depth), RNG.normal(size=(13, depth)).astype(np.float32)
    expected = rounded(inputs, 64) @ rounded(dequantize(weight).astype(np.float32), depth).T
    found = product(backend, inputs, weight)
    assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("depth", [96, 128])
def test_all_instruction_sets_give_the_same_bits(depth: int) -> None:
    """96 is no multiple of 64: activations then share scales by 32."""
    weight, inputs = float_tensor(RNG.normal(size=(40, depth))), RNG.normal(size=(9, depth))
    plain = product(cpu_backend("portable", 1, per_channel=True), inputs, weight)
    for isa in instruction_sets():
        assert same_bits(product(cpu_backend(isa, 1, per_channel=True), inputs, weight), plain), isa


def test_rows_of_zeros_stay_zeros() -> None:
    weight = np.zeros((34, 64))
    weight[3] = 1
    found = product(cpu_backend("portable", per_channel=True), np.ones((2, 64)), float_tensor(weight))
    assert np.flatnonzero(found[0]).tolist() == [3]


def test_a_depth_that_has_no_groups_is_refused() -> None:
    with pytest.raises(CheckpointError, match="int8 needs a depth that is a multiple of 32"):
        CpuBackend(1, per_channel=True).weight([float_tensor(np.ones((4, 40)))])


def test_an_unknown_quantization_is_refused_by_name() -> None:
    from paceline.config import EngineConfig

    with pytest.raises(ConfigError, match="--quantization must be int8 or left out"):
        EngineConfig(quantization="awq")
