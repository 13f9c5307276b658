"""Every operation of every backend computes what the reference does, within the tolerance stated at the test.

Errors are relative to the largest magnitude of the expected output.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from op_models import (
    CPU_BACKENDS,
    MakeHidden,
    batch_of,
    cpu_backend,
    float_tensor,
    int32,
    kv_layout,
    make_session,
    run_tokens,
    tables_of,
)

from paceline.ops.cpu import CpuBackend
from paceline.ops.dequantize import row_bytes
from paceline.ops.protocol import Activation, AttentionShape, Backend, HostTensor, KvFormat, TensorKind
from paceline.ops.reference import ReferenceBackend

RNG = np.random.default_rng(11)
QUANTIZED = [kind for kind in TensorKind if kind.value.startswith("Q")]


@pytest.fixture(params=CPU_BACKENDS, ids=lambda p: f"{p[0]}-{p[1]}")
def backend(request: pytest.FixtureRequest) -> CpuBackend:
    return cpu_backend(*request.param)


def error(ours: NDArray[np.floating], expected: NDArray[np.floating]) -> float:
    assert ours.shape == expected.shape
    return float(np.abs(ours - expected).max() / np.abs(expected).max())


def operation_error(backend: Backend, make: MakeHidden, num_tokens: int) -> float:
    return error(run_tokens(backend, make, num_tokens), run_tokens(ReferenceBackend(), make, num_tokens))


def random_tensor(kind: TensorKind, num_rows: int, columns: int) -> HostTensor:
    """Random numbers with scales of the usual size: random bytes, but for the float16 scales of quantized kinds."""
    if not kind.value.startswith("Q"):
        values = RNG.normal(size=(num_rows, columns)).astype(np.float16 if kind == TensorKind.F16 else np.float32)
        data = values.view(np.uint8)
        if kind == TensorKind.BF16:
            data = np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
        return HostTensor(kind.value, kind, num_rows, columns, data)
    block_bytes = row_bytes(kind, 256)
    data = RNG.integers(0, 256, (num_rows, columns // 256, block_bytes), dtype=np.uint8)
    blocks = data.reshape(num_rows * columns // 256, -1)
    scale_at = {TensorKind.Q6_K: [208], TensorKind.Q4_K: [0, 2], TensorKind.Q5_K: [0, 2]}
    for start in scale_at.get(kind, []):
        blocks[:, start : start + 2] = RNG.uniform(0.001, 0.01, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    if kind not in scale_at:
        small = data.reshape(-1, row_bytes(kind, 32))
        for start in [0, 2] if kind in (TensorKind.Q4_1, TensorKind.Q5_1) else [0]:
            small[:, start : start + 2] = RNG.uniform(0.001, 0.01, (len(small), 1)).astype(np.float16).view(np.uint8)
    return HostTensor(kind.value, kind, num_rows, columns, data.reshape(num_rows, -1))


@pytest.mark.parametrize("kind", list(TensorKind))
def test_embed_gives_the_values_of_the_file(backend: CpuBackend, kind: TensorKind) -> None:
    tensor = random_tensor(kind, 40, 512)

    def make(b: Backend):
        table = b.weight([tensor])
        return lambda ops: ops.embed(table)

    assert operation_error(backend, make, 40) <= 1e-7


@pytest.mark.parametrize("width", [576, 40, 8])
@pytest.mark.parametrize("with_residual", [False, True])
def test_norm(backend: CpuBackend, width: int, with_residual: bool) -> None:
    x, residual, scale = RNG.normal(size=(30, width)), RNG.normal(size=(30, width)), RNG.normal(size=width)

    def make(b: Backend):
        table, other = b.weight([float_tensor(x)]), b.weight([float_tensor(residual)])
        weight = b.vector(float_tensor(scale))
        if not with_residual:
            return lambda ops: ops.norm(ops.embed(table), weight, 1e-5)

        def hidden(ops):
            normed, total = ops.add_norm(ops.embed(table), ops.embed(other), weight, 1e-5)
            return ops.add_norm(normed, total, weight, 1e-5)[1]

        return hidden

    assert operation_error(backend, make, 30) <= 1e-6


@pytest.mark.parametrize("activation", list(Activation))
@pytest.mark.parametrize("width", [1536, 24])
def test_gated(backend: CpuBackend, activation: Activation, width: int) -> None:
    gate_up = RNG.normal(scale=3.0, size=(20, 2 * width))
    gate_up[0, :8] = [-1000, -100, -88, -20, 20, 88, 100, 1000]

    def make(b: Backend):
        table = b.weight([float_tensor(gate_up)])
        return lambda ops: ops.gated(ops.embed(table), activation)

    assert operation_error(backend, make, 20) <= 1e-6


def representable(num_rows: int, depth: int) -> NDArray[np.floating]:
    """Activations that int8 with a scale a group of 32 holds exactly: integers up to 127 times a power of two."""
    groups = RNG.integers(-127, 128, (num_rows, depth // 32, 32)).astype(np.float64)
    groups[:, :, 0] = 127
    return (groups * 2.0 ** RNG.integers(-9, -3, (num_rows, depth // 32, 1))).reshape(num_rows, depth)


def make_linear(x: NDArray[np.floating], tensors: list[HostTensor], with_bias: bool) -> MakeHidden:
    bias_values = RNG.normal(size=sum(tensor.num_rows for tensor in tensors))

    def make(b: Backend):
        table, weight = b.weight([float_tensor(x)]), b.weight(tensors)
        bias = b.vector(float_tensor(bias_values)) if with_bias else None
        return lambda ops: ops.linear(ops.embed(table), weight, bias)

    return make


@pytest.mark.parametrize("kind", list(TensorKind))
def test_linear_is_exact_where_activations_are_representable(backend: CpuBackend, kind: TensorKind) -> None:
    make = make_linear(representable(70, 512), [random_tensor(kind, 100, 512)], with_bias=True)
    assert operation_error(backend, make, 70) <= 1e-5


@pytest.mark.parametrize("kind", QUANTIZED)
def test_linear_errs_by_the_rounding_of_activations_otherwise(backend: CpuBackend, kind: TensorKind) -> None:
    make = make_linear(RNG.normal(size=(20, 512)), [random_tensor(kind, 100, 512)], with_bias=False)
    assert 1e-5 < operation_error(backend, make, 20) <= 0.02


def test_linear_over_stacked_tensors(backend: CpuBackend) -> None:
    tensors = [random_tensor(TensorKind.Q4_1, rows, 256) for rows in (48, 16, 7)]
    assert operation_error(backend, make_linear(representable(5, 256), tensors, False), 5) <= 1e-5


# float32 KV: rounding of sums. bfloat16 KV: keys and values are rounded alike on both sides; the query and the weights
# of the softmax are rounded on ours only. int8 KV: only the query is, to 8 bits.
@pytest.mark.parametrize("head_width", [16, 22])
@pytest.mark.parametrize(("kv_format", "tolerance"), [("float32", 1e-5), ("bfloat16", 1e-2), ("int8", 2e-2)])
@pytest.mark.parametrize(("window", "soft_cap"), [(None, None), (50, None), (None, 5.0), (130, 20.0)])
def test_attention_over_chunks_and_decodes(
    backend: CpuBackend, kv_format: str, tolerance: float, window: int | None, soft_cap: float | None, head_width: int
) -> None:
    shape = AttentionShape(6, 2, head_width, scale=0.25, window=window, soft_cap=soft_cap)
    qkv = RNG.normal(size=(64, 10 * head_width))

    def make(b: Backend):
        table = b.weight([float_tensor(qkv)])

        def hidden(ops):
            x = ops.attend(ops.rotary_store(ops.embed(table), 1, shape), 1, shape)
            q = ops.rotary_store(ops.embed(table), 0, shape)
            return ops.add_norm(x, ops.attend(q, 0, shape), b.vector(float_tensor(np.ones(6 * head_width))), 1e-5)[1]

        return hidden

    tables = tables_of(3, 20)
    tokens = RNG.integers(0, 64, 300)
    steps = [
        batch_of([(1, 0, tokens[:150]), (0, 0, tokens[:37])], tables),
        batch_of([(0, 37, tokens[37:38]), (1, 150, tokens[150:290]), (2, 0, tokens[:3])], tables),
        batch_of([(1, 290, tokens[290:291]), (0, 38, tokens[38:39])], tables),
    ]
    kv = kv_layout(num_layers=2, head_width=head_width, kv_format=kv_format)
    ours, expected = make_session(backend, make, kv), make_session(ReferenceBackend(), make, kv)
    for step in steps:
        rows = int32(np.arange(len(step.tokens)))
        ours.forward(step)
        expected.forward(step)
        assert error(ours.logits(rows), expected.logits(rows)) <= tolerance


@pytest.mark.parametrize("copied", range(1, 5))
@pytest.mark.parametrize("kv_format", list(KvFormat))
def test_copied_blocks_are_read_like_their_source(backend: CpuBackend, kv_format: KvFormat, copied: int) -> None:
    shape = AttentionShape(2, 2, 16, scale=0.25)
    qkv = RNG.normal(size=(32, 6 * 16))

    def make(b: Backend):
        table = b.weight([float_tensor(qkv)])
        return lambda ops: ops.attend(ops.rotary_store(ops.embed(table), 0, shape), 0, shape)

    session = make_session(backend, make, kv_layout(kv_format=kv_format))
    end = 16 + copied
    tables = int32([[3, 4], [3, 9]])
    session.forward(batch_of([(0, 0, range(20))], tables))
    session.forward(batch_of([(0, end, [30])], tables))
    expected = session.logits(int32([0]))
    session.forward(batch_of([(1, 16, range(5, 11))], tables))
    session.copy_blocks(int32([[4, 7, copied], [7, 9, copied]]))
    session.forward(batch_of([(1, end, [30])], tables))
    assert np.array_equal(session.logits(int32([0])), expected)
