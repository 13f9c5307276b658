"""The reference backend means what the protocol says; each operation against its definition written out, or torch's."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from paceline.ops.protocol import (
    Activation,
    AttentionShape,
    Batch,
    HostTensor,
    KvFormat,
    KvLayout,
    RotaryTable,
    TensorKind,
)
from paceline.ops.reference import KvPool, ReferenceBackend, ReferenceOps

Values = NDArray[np.float64]
RNG = np.random.default_rng(5)
HEADS, KV_HEADS, HEAD_WIDTH, BLOCK_SIZE = 4, 2, 8, 4
SHAPE = AttentionShape(HEADS, KV_HEADS, HEAD_WIDTH, scale=0.5)


def int32(values: object) -> NDArray[np.int32]:
    return np.array(values, np.int32)


def make_pool(kv_format: KvFormat = KvFormat.FLOAT32) -> KvPool:
    return KvPool(KvLayout(2, 16, BLOCK_SIZE, KV_HEADS, HEAD_WIDTH, kv_format))


def make_rotary(rotated_width: int = HEAD_WIDTH) -> RotaryTable:
    angles = np.outer(np.arange(64), 0.3 ** np.arange(rotated_width // 2)).astype(np.float32)
    return RotaryTable(np.cos(angles), np.sin(angles))


# Rows of a step: (slot, start, tokens). Slot 1 owns blocks 5 3 9 1, slot 0 blocks 2 8 4 6.
TABLES = int32([[2, 8, 4, 6], [5, 3, 9, 1]])


def make_ops(rows: list[tuple[int, int, int]], pool: KvPool, rotary: RotaryTable | None = None) -> ReferenceOps:
    positions = np.concatenate([np.arange(start, start + count) for _, start, count in rows])
    starts = np.concatenate([[0], np.cumsum([count for _, _, count in rows])])
    batch = Batch(int32(positions * 0), int32(positions), int32(starts), int32([slot for slot, _, _ in rows]), TABLES)
    return ReferenceOps(batch, pool, rotary or make_rotary(), int32([]))


def qkv_of(num_tokens: int) -> Values:
    return RNG.normal(size=(num_tokens, (HEADS + 2 * KV_HEADS) * HEAD_WIDTH))


def test_norm_and_add_norm_equal_torch() -> None:
    x, residual, weight = RNG.normal(size=(3, 16)), RNG.normal(size=(3, 16)), RNG.normal(size=16)
    ops = make_ops([(0, 0, 3)], make_pool())
    total = torch.tensor(x + residual)
    expected = torch.nn.functional.rms_norm(total, (16,), torch.tensor(weight), 1e-3).numpy()
    normed, kept = ops.add_norm(x, residual, weight, 1e-3)
    assert np.allclose(normed, expected, rtol=1e-12)
    assert np.array_equal(kept, x + residual)
    assert np.array_equal(ops.norm(kept, weight, 1e-3), normed)


def test_linear_equals_the_product_and_a_row_does_not_see_the_others() -> None:
    x, weight, bias = RNG.normal(size=(5, 16)), RNG.normal(size=(7, 16)), RNG.normal(size=7)
    ops = make_ops([(0, 0, 5)], make_pool())
    out = ops.linear(x, weight, bias)
    assert np.allclose(out, x @ weight.T + bias, rtol=1e-12)
    assert np.array_equal(ops.linear(x[3:4], weight, bias)[0], out[3])


def test_weights_of_several_kinds_are_stacked_by_rows() -> None:
    first, second = RNG.normal(size=(3, 8)).astype(np.float32), RNG.normal(size=(2, 8)).astype(np.float16)
    parts = [
        HostTensor("a", TensorKind.F32, 3, 8, first.view(np.uint8)),
        HostTensor("b", TensorKind.F16, 2, 8, second.view(np.uint8)),
    ]
    assert np.array_equal(ReferenceBackend().weight(parts), np.concatenate([first, second]))


@pytest.mark.parametrize("activation", list(Activation))
def test_gated_equals_torch(activation: Activation) -> None:
    gate_up = np.concatenate([np.linspace(-30, 30, 64)[None], RNG.normal(size=(1, 64))], axis=1)
    gate, up = torch.tensor(gate_up).chunk(2, dim=-1)
    functional = torch.nn.functional
    activated = functional.silu(gate) if activation is Activation.SILU else functional.gelu(gate, approximate="tanh")
    out = make_ops([(0, 0, 1)], make_pool()).gated(gate_up, activation)
    assert np.allclose(out, (activated * up).numpy(), rtol=1e-9, atol=1e-12)


def test_silu_of_a_very_negative_gate_is_zero() -> None:
    out = make_ops([(0, 0, 1)], make_pool()).gated(np.array([[-1e4, 1.0]]), Activation.SILU)
    assert out[0, 0] == 0.0


@pytest.mark.parametrize("rotated_width", [8, 4])
def test_rotary_turns_pairs_by_their_angle_and_leaves_the_rest(rotated_width: int) -> None:
    rotary, position, qkv = make_rotary(rotated_width), 11, qkv_of(1)
    q = make_ops([(0, position, 1)], make_pool(), rotary).rotary_store(qkv, 0, SHAPE).reshape(HEADS, HEAD_WIDTH)
    before, half = qkv[0].reshape(-1, HEAD_WIDTH), rotated_width // 2
    for head in range(HEADS):
        for pair in range(half):
            cos, sin = float(rotary.cos[position, pair]), float(rotary.sin[position, pair])
            turned = complex(before[head, pair], before[head, pair + half]) * complex(cos, sin)
            assert np.isclose(q[head, pair], turned.real)
            assert np.isclose(q[head, pair + half], turned.imag)
        assert np.array_equal(q[head, rotated_width:], before[head, rotated_width:])


def test_keys_and_values_go_to_the_blocks_of_their_row() -> None:
    pool, qkv = make_pool(), qkv_of(3)
    make_ops([(1, 6, 3)], pool).rotary_store(qkv, 1, SHAPE)
    values = qkv.reshape(3, -1, HEAD_WIDTH)[:, HEADS + KV_HEADS :].astype(np.float32)
    places = [(3, 2), (3, 3), (9, 0)]  # positions 6, 7, 8 of slot 1: its second block, then its third
    for token_index, (block, offset) in enumerate(places):
        assert np.array_equal(pool.values[1, block, offset], values[token_index])
        assert np.any(pool.keys[1, block, offset])
    written = np.argwhere(pool.values.any(axis=(3, 4)))
    assert sorted(map(tuple, written.tolist())) == sorted((1, *place) for place in places)


@pytest.mark.parametrize("window", [None, 1, 3, 5, 100])
@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_attention_equals_torch(window: int | None, soft_cap: float | None) -> None:
    count = 13
    shape = AttentionShape(HEADS, KV_HEADS, HEAD_WIDTH, 0.5, window, soft_cap)
    ops, qkv = make_ops([(1, 0, count)], make_pool()), qkv_of(count)
    q = ops.rotary_store(qkv, 0, shape)
    out = ops.attend(q, 0, shape)
    keys, values = ops.pool.read(0, int32([TABLES[1, p // 4] * 4 + p % 4 for p in range(count)]))
    queries = torch.tensor(q).reshape(count, HEADS, HEAD_WIDTH).transpose(0, 1)
    repeat = HEADS // KV_HEADS
    key, value = (torch.tensor(x).transpose(0, 1).repeat_interleave(repeat, 0) for x in (keys, values))
    scores = queries @ key.transpose(1, 2) * 0.5
    scores = scores if soft_cap is None else soft_cap * torch.tanh(scores / soft_cap)
    age = torch.arange(count)[:, None] - torch.arange(count)[None]
    visible = (age >= 0) & (age < (window or count))
    weights = scores.masked_fill(~visible, float("-inf")).softmax(-1)
    expected = (weights @ value).transpose(0, 1).reshape(count, -1)
    assert np.allclose(out, expected.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kv_format", list(KvFormat))
def test_a_rows_bits_depend_neither_on_chunks_nor_on_company(kv_format: KvFormat) -> None:
    mine, others = qkv_of(12), qkv_of(9)
    pool = make_pool(kv_format)
    ops = make_ops([(0, 0, 12)], pool)
    whole = ops.attend(ops.rotary_store(mine, 0, SHAPE), 0, SHAPE)
    pool, parts = make_pool(kv_format), []
    for start, stop in [(0, 1), (1, 6), (6, 12)]:
        count = stop - start
        ops = make_ops([(1, start, 3), (0, start, count)], pool)
        qkv = np.concatenate([others[start // 2 : start // 2 + 3], mine[start:stop]])
        parts.append(ops.attend(ops.rotary_store(qkv, 0, SHAPE), 0, SHAPE)[3:])
    assert np.array_equal(np.concatenate(parts).view(np.uint64), whole.view(np.uint64))


def test_bfloat16_kv_equals_torch_rounding() -> None:
    pool, qkv = make_pool(KvFormat.BFLOAT16), qkv_of(4)
    make_ops([(0, 0, 4)], pool).rotary_store(qkv, 0, SHAPE)
    values = torch.tensor(qkv.reshape(4, -1, HEAD_WIDTH)[:, HEADS + KV_HEADS :]).float().bfloat16().float()
    assert np.array_equal(pool.values[0, 2], values.numpy())


def test_copies_run_in_order_and_only_copy_what_they_say() -> None:
    pool = make_pool()
    pool.keys[:] = RNG.normal(size=pool.keys.shape)
    before = pool.keys.copy()
    for source, target, count in [(1, 2, 3), (2, 3, 4)]:
        pool.copy(source, target, count)
    assert np.array_equal(pool.keys[:, 2, :3], before[:, 1, :3])
    assert np.array_equal(pool.keys[:, 2, 3], before[:, 2, 3])
    assert np.array_equal(pool.keys[:, 3], pool.keys[:, 2])


def test_take_rows_and_embed_pick_rows() -> None:
    x = RNG.normal(size=(6, 4))
    batch = Batch(int32([5, 0, 5]), int32([0, 1, 2]), int32([0, 3]), int32([0]), TABLES)
    ops = ReferenceOps(batch, make_pool(), make_rotary(), int32([2, 0]))
    assert np.array_equal(ops.embed(x), x[[5, 0, 5]])
    assert np.array_equal(ops.take_rows(x[:3]), x[[2, 0]])
