"""What the CPU backend refuses, how it says so, and that its threads rest."""

import time
from dataclasses import replace

import numpy as np
import pytest
from op_models import (
    batch_of,
    cpu_backend,
    float_tensor,
    int32,
    kv_layout,
    logits_session,
    make_session,
    sample_batch,
    tables_of,
)

from paceline.errors import CheckpointError, ConfigError
from paceline.ops.cpu import CpuBackend, instruction_sets
from paceline.ops.protocol import AttentionShape, Backend, HostTensor, Session, TensorKind

SHAPE = AttentionShape(2, 2, 16, scale=0.25)


def attention_session(shape: AttentionShape = SHAPE) -> Session:
    qkv = np.zeros((10, 6 * 16))

    def make(b: Backend):
        table = b.weight([float_tensor(qkv)])
        return lambda ops: ops.attend(ops.rotary_store(ops.embed(table), 0, shape), 0, shape)

    return make_session(CpuBackend(1), make)


def test_an_unknown_instruction_set_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="avx9000 is not available on this machine"):
        CpuBackend(1, "avx9000")
    with pytest.raises(ConfigError, match="num_threads must be at least 1"):
        CpuBackend(0)


def test_every_set_of_this_machine_can_be_asked_for_and_the_first_is_the_default() -> None:
    assert [CpuBackend(1, isa).isa for isa in instruction_sets()] == list(instruction_sets())
    assert CpuBackend(1).isa == instruction_sets()[0]
    assert instruction_sets()[-1] == "portable"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(0, 0, [10])], "token id: 10, the limit is 9"),
        ([(0, 0, [-1])], "token id: -1"),
        ([(5, 0, [1])], "slot: 5, the limit is 1"),
        ([(0, 512, [1])], "position: 512, the limit is 511"),
        ([(0, -1, [1])], "position: -1"),
        ([(0, 63, [1, 2])], "blocks of a row: 5, the limit is 4"),
        ([(0, 0, [])], "row_starts must ascend"),
        ([(0, 0, [1] * 601)], "tokens in a step: 601, the limit is 600"),
        ([(0, 0, [1])] * 17, "rows in a step: 17, the limit is 16"),
    ],
)
def test_a_batch_that_would_leave_its_arrays_is_refused(rows: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention_session().forward(batch_of(rows, tables_of(2, 4)))


def test_a_block_outside_the_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="block id: 64, the limit is 63"):
        attention_session().forward(batch_of([(0, 0, [1])], int32([[64]])))
    with pytest.raises(ValueError, match="copy_blocks: block: 64, the limit is 63"):
        attention_session().copy_blocks(int32([[0, 64, 3]]))
    with pytest.raises(ValueError, match="copy_blocks: tokens: 17, the limit is 16"):
        attention_session().copy_blocks(int32([[0, 1, 17]]))


def test_arrays_are_not_converted() -> None:
    batch = batch_of([(0, 0, [1, 2])], tables_of(2, 4))
    session = attention_session()
    with pytest.raises(TypeError, match="tokens: must be a C-contiguous array of 32 bits"):
        session.forward(replace(batch, tokens=batch.tokens.astype(np.int64)))
    with pytest.raises(TypeError, match=r"block_tables: .* rank 2"):
        session.forward(replace(batch, block_tables=batch.block_tables.T))
    with pytest.raises(ValueError, match="positions: has 1 elements, must have 2"):
        session.forward(replace(batch, positions=batch.positions[:1]))


def test_a_sample_batch_that_would_leave_its_arrays_is_refused() -> None:
    session = logits_session(CpuBackend(1), np.zeros((2, 8)))
    for fields, message in [
        ({"targets": 8}, "target: 8, the limit is 7"),
        ({"slots": 1}, "slot: 1, the limit is 0"),
        ({"num_known": 9}, "num_known: 9, the limit is 8"),
        ({"bias": [{8: 1.0}]}, "bias id: 8, the limit is 7"),
    ]:
        with pytest.raises(ValueError, match=message):
            session.sample(sample_batch([0], **fields))
    with pytest.raises(ValueError, match="token row: 2, the limit is 1"):
        session.sample(sample_batch([2]))


def test_operations_that_do_not_fit_are_refused_when_recorded() -> None:
    backend = CpuBackend(1)
    table = backend.weight([float_tensor(np.zeros((4, 32)))])
    weight = backend.weight([float_tensor(np.zeros((4, 48)))])
    with pytest.raises(ValueError, match="linear: the input is 32 wide, the operands are made for 48"):
        make_session(backend, lambda b: lambda ops: ops.linear(ops.embed(table), weight))
    with pytest.raises(ValueError, match="rotary_store: the input is 32 wide"):
        make_session(backend, lambda b: lambda ops: ops.rotary_store(ops.embed(table), 0, SHAPE))
    wide = backend.weight([float_tensor(np.zeros((4, 96)))])
    with pytest.raises(ValueError, match="attention: KV heads: 2, the limit is 3"):
        make_session(
            backend, lambda b: lambda ops: ops.rotary_store(ops.embed(wide), 0, SHAPE), kv_layout(num_kv_heads=3)
        )


def test_tensors_that_do_not_fit_are_refused_by_name() -> None:
    backend = CpuBackend(1)
    short = HostTensor("blk.0.down", TensorKind.Q4_0, 2, 64, np.zeros((2, 35), np.uint8))
    with pytest.raises(CheckpointError, match=r"blk.0.down: data is \[2, 35\], must be \[2, 36\]"):
        backend.weight([short])
    with pytest.raises(CheckpointError, match="norm: a vector has one row"):
        backend.vector(float_tensor(np.zeros((2, 8)), "norm"))


def test_a_session_outlives_its_backend_and_weights() -> None:
    session = logits_session(cpu_backend("portable", 2), np.arange(12.0).reshape(2, 6))
    assert session.logits(int32([1]))[0].tolist() == [6, 7, 8, 9, 10, 11]


def test_idle_threads_use_no_time() -> None:
    session = logits_session(CpuBackend(2), np.zeros((2, 8)))
    session.logits(int32([0]))
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.01
    assert session.logits(int32([0])).shape == (1, 8)
