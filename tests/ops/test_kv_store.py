"""What attention reads of stored keys and values does not depend on how many tokens were stored together.

The CPU kernel stores four tokens of a row at once where they fill whole units of the pool, and others each by itself.
"""

import numpy as np
import pytest
from numpy.typing import NDArray
from op_models import CPU_BACKENDS, batch_of, cpu_backend, float_tensor, int32, kv_layout, make_session, tables_of
from test_conformance import error

from paceline.ops.protocol import AttentionShape, Backend, Float32Array, KvFormat
from paceline.ops.reference import ReferenceBackend

RNG = np.random.default_rng(23)
HEADS, KV_HEADS = 3, 1
LENGTHS = (75, 23)
TOLERANCE = {KvFormat.FLOAT32: 1e-5, KvFormat.BFLOAT16: 1e-2, KvFormat.INT8: 2e-2}
# Tokens of both rows in each step: chunks that start and end at any lane, cross groups and blocks, and leave the tokens
# of the second row anywhere in the kernel's tiles of eight.
CHUNKS = [(1, 0), (2, 3), (4, 0), (6, 1), (7, 4), (20, 2), (3, 5), (16, 0), (5, 7), (11, 1)]
ALONE = [(1, 0)] * LENGTHS[0] + [(0, 1)] * LENGTHS[1]


def attended(
    backend: Backend, kv_format: KvFormat, qkv: NDArray[np.floating], steps: list[tuple[int, int]]
) -> list[Float32Array]:
    """What attention gives each token of both rows. Token i of the model is row i of `qkv`."""
    width = qkv.shape[1] // (HEADS + 2 * KV_HEADS)
    shape = AttentionShape(HEADS, KV_HEADS, width, scale=width**-0.5)

    def make(b: Backend):
        table = b.weight([float_tensor(qkv)])
        return lambda ops: ops.attend(ops.rotary_store(ops.embed(table), 0, shape), 0, shape)

    session = make_session(backend, make, kv_layout(num_kv_heads=KV_HEADS, head_width=width, kv_format=kv_format))
    tables, done = tables_of(2, 6), [0, 0]
    results: list[list[Float32Array]] = [[], []]
    for counts in steps:
        rows = [row for row in (0, 1) if counts[row]]
        chunks = {row: range(row * LENGTHS[0] + done[row], row * LENGTHS[0] + done[row] + counts[row]) for row in rows}
        session.forward(batch_of([(row, done[row], chunks[row]) for row in rows], tables))
        logits = session.logits(int32(np.arange(sum(counts))))
        for row, part in zip(rows, np.split(logits, [counts[rows[0]]]), strict=False):
            results[row].append(part)
            done[row] += counts[row]
    assert tuple(done) == LENGTHS
    return [np.concatenate(parts) for parts in results]


def numbers(head_width: int) -> NDArray[np.floating]:
    return RNG.normal(size=(sum(LENGTHS), (HEADS + 2 * KV_HEADS) * head_width))


@pytest.mark.parametrize(("isa", "num_threads"), CPU_BACKENDS)
@pytest.mark.parametrize("kv_format", list(KvFormat))
@pytest.mark.parametrize("head_width", [22, 40, 64, 80, 96, 128])
def test_chunks_from_any_lane_store_what_single_tokens_do(
    head_width: int, kv_format: KvFormat, isa: str, num_threads: int
) -> None:
    qkv, backend = numbers(head_width), cpu_backend(isa, num_threads)
    expected = attended(ReferenceBackend(), kv_format, qkv, CHUNKS)
    alone = attended(backend, kv_format, qkv, ALONE)
    chunked = attended(backend, kv_format, qkv, CHUNKS)
    for row in (0, 1):
        assert np.array_equal(chunked[row], alone[row])
        assert error(chunked[row], expected[row]) <= TOLERANCE[kv_format]


@pytest.mark.parametrize(("isa", "num_threads"), CPU_BACKENDS)
@pytest.mark.parametrize("kv_format", list(KvFormat))
@pytest.mark.parametrize("head_width", [40, 64])
def test_overflow_and_nan_stay_with_those_who_see_them(
    head_width: int, kv_format: KvFormat, isa: str, num_threads: int
) -> None:
    qkv, first_broken = numbers(head_width), (22, 18)  # inside a group of keys and inside a chunk
    stored = qkv[:, HEADS * head_width :]
    broken = [np.nan, np.inf, -np.inf, 3.4e38, -3.4e38]
    for row, start in ((0, 0), (1, LENGTHS[0])):
        for i, token in enumerate(range(start + first_broken[row], start + LENGTHS[row], 2)):
            stored[token, RNG.integers(stored.shape[1])] = broken[i % len(broken)]
    backend = cpu_backend(isa, num_threads)
    alone = attended(backend, kv_format, qkv, ALONE)
    chunked = attended(backend, kv_format, qkv, CHUNKS)
    for row in (0, 1):
        assert np.isfinite(chunked[row][: first_broken[row]]).all()
        assert np.array_equal(chunked[row], alone[row], equal_nan=True)
