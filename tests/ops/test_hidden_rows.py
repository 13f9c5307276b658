"""`Session.hidden` reads the rows of the last forward's hidden states, on every backend."""

import numpy as np
import pytest
from op_models import CPU_BACKENDS, batch_of, cpu_backend, float_tensor, int32, make_session, same_bits

from paceline.ops.protocol import Backend, Session
from paceline.ops.reference import ReferenceBackend

TABLE = np.random.default_rng(5).normal(size=(40, 24))
SCALE = np.random.default_rng(6).normal(size=24)


@pytest.fixture(params=[None, *CPU_BACKENDS], ids=lambda p: "reference" if p is None else f"{p[0]}-{p[1]}")
def backend(request: pytest.FixtureRequest) -> Backend:
    return ReferenceBackend() if request.param is None else cpu_backend(*request.param)


def session_after(backend: Backend, tokens: list[int]) -> Session:
    """A session of embed and norm, after a forward of one row of tokens."""

    def make(b: Backend):
        table, weight = b.weight([float_tensor(TABLE)]), b.vector(float_tensor(SCALE))
        return lambda ops: ops.norm(ops.embed(table), weight, 1e-5)

    session = make_session(backend, make)
    session.forward(batch_of([(0, 0, tokens)]))
    return session


def test_rows_come_in_the_order_asked_for(backend: Backend) -> None:
    session = session_after(backend, list(range(30)))
    rows = int32([29, 3, 3, 0])
    expected = TABLE[rows] / np.sqrt(np.mean(TABLE[rows] ** 2, axis=-1, keepdims=True) + 1e-5) * SCALE
    hidden = session.hidden(rows)
    assert (hidden.shape, hidden.dtype) == ((4, 24), np.float32)
    assert np.abs(hidden - expected).max() <= 1e-6 * np.abs(expected).max()
    # The head of this model is the identity: what it reads is what `hidden` gives.
    assert same_bits(hidden, session.logits(rows))


def test_no_rows_are_an_empty_array(backend: Backend) -> None:
    assert session_after(backend, [1, 2]).hidden(int32([])).shape == (0, 24)


def test_what_was_read_does_not_change_with_the_next_forward(backend: Backend) -> None:
    session = session_after(backend, [1, 2, 3])
    hidden = session.hidden(int32([0, 1, 2]))
    kept = hidden.copy()
    session.forward(batch_of([(0, 3, [9, 8, 7])]))
    assert same_bits(hidden, kept)
    assert not same_bits(session.hidden(int32([0, 1, 2])), kept)


@pytest.mark.parametrize(("isa", "num_threads"), CPU_BACKENDS[::2])
@pytest.mark.parametrize("row", [-1, 3])
def test_rows_the_step_does_not_have_are_refused(isa: str, num_threads: int, row: int) -> None:
    session = session_after(cpu_backend(isa, num_threads), [1, 2, 3])
    with pytest.raises(ValueError, match=f"token row: {row}, the limit is 2"):
        session.hidden(int32([row]))
