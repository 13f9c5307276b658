"""Same request, same bits: whatever else is in the step, however it was chunked, at any number of threads."""

from collections.abc import Iterator

import numpy as np
import pytest
from op_models import (
    batch_of,
    cpu_backend,
    float_tensor,
    int32,
    kv_layout,
    make_session,
    same_bits,
    sample_batch,
    tables_of,
)
from test_conformance import random_tensor

from paceline.ops.cpu import INSTRUCTION_SETS
from paceline.ops.protocol import Activation, AttentionShape, Backend, Session, TensorKind

SHAPE = AttentionShape(4, 2, 32, scale=0.2)
LAYERS, WIDTH, VOCABULARY = 2, 256, 300
RNG = np.random.default_rng(7)
TENSORS = {
    "embedding": random_tensor(TensorKind.Q8_0, VOCABULARY, WIDTH),
    "qkv": random_tensor(TensorKind.Q4_1, 8 * 32, WIDTH),
    "output": float_tensor(RNG.normal(size=(WIDTH, 4 * 32))),
    "gate_up": random_tensor(TensorKind.Q4_K, 2 * 512, WIDTH),
    "down": random_tensor(TensorKind.Q6_K, WIDTH, 512),
}
NORM = float_tensor(RNG.normal(size=WIDTH))
PROMPTS = [RNG.integers(0, VOCABULARY, length).tolist() for length in (301, 17, 64)]


def make_hidden(backend: Backend):
    weights = {name: backend.weight([tensor]) for name, tensor in TENSORS.items()}
    norm = backend.vector(NORM)

    def hidden(ops):
        residual = ops.embed(weights["embedding"])
        x = ops.norm(residual, norm, 1e-5)
        for layer_index in range(LAYERS):
            q = ops.rotary_store(ops.linear(x, weights["qkv"]), layer_index, SHAPE)
            x = ops.linear(ops.attend(q, layer_index, SHAPE), weights["output"])
            x, residual = ops.add_norm(x, residual, norm, 1e-5)
            x = ops.linear(ops.gated(ops.linear(x, weights["gate_up"]), Activation.SILU), weights["down"])
            x, residual = ops.add_norm(x, residual, norm, 1e-5)
        return x

    return hidden


def new_session(isa: str, num_threads: int, per_channel: bool = False, kv_format: str = "bfloat16") -> Session:
    kv = kv_layout(num_layers=LAYERS, head_width=32, kv_format=kv_format)
    return make_session(cpu_backend(isa, num_threads, per_channel), make_hidden, kv)


def hidden_states(session: Session, chunks: Iterator[list[tuple[int, int]]]) -> list[np.ndarray]:
    """Hidden states of every prompt. A chunk list holds (prompt, tokens to compute) of one step."""
    tables, done = tables_of(3, 20), [0, 0, 0]
    out: list[list[np.ndarray]] = [[], [], []]
    for step in chunks:
        session.forward(batch_of([(p, done[p], PROMPTS[p][done[p] : done[p] + n]) for p, n in step], tables))
        states = session.logits(int32(np.arange(sum(n for _, n in step))))
        start = 0
        for p, n in step:
            out[p].append(states[start : start + n])
            done[p] += n
            start += n
    return [np.concatenate(states) for states in out]


def random_chunks(seed: int) -> Iterator[list[tuple[int, int]]]:
    rng = np.random.default_rng(seed)
    left = [len(prompt) for prompt in PROMPTS]
    while any(left):
        step = []
        for p in rng.permutation(3).tolist():
            n = min(left[p], int(rng.choice([0, 1, 1, 2, 7, 16, 40, 130])))
            if n > 0:
                step.append((p, n))
                left[p] -= n
        if step:
            yield step


@pytest.mark.parametrize(("per_channel", "kv_format"), [(False, "bfloat16"), (True, "int8"), (False, "float32")])
@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_bits_depend_on_neither_batch_nor_chunks_nor_threads(isa: str, per_channel: bool, kv_format: str) -> None:
    plain = hidden_states(new_session(isa, 1, per_channel, kv_format), iter([[(0, 301)], [(1, 17)], [(2, 64)]]))
    for num_threads in (1, 2):
        session = new_session(isa, num_threads, per_channel, kv_format)
        for seed in range(4):
            mixed = hidden_states(session, random_chunks(seed))
            assert all(same_bits(a, b) for a, b in zip(mixed, plain, strict=True))


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_a_draw_does_not_depend_on_the_rows_beside_it(isa: str) -> None:
    results = []
    for num_threads in (1, 2):
        session = new_session(isa, num_threads)
        session.forward(batch_of([(0, 0, PROMPTS[0])], tables_of(1, 20)))
        rows, seeds = list(range(0, 300, 3)), np.arange(100) * 7
        whole = session.sample(sample_batch(rows, temperature=0.7, top_p=0.9, seeds=seeds, num_top=3))
        single = [
            session.sample(sample_batch([row], temperature=0.7, top_p=0.9, seeds=seed, num_top=3))
            for row, seed in zip(rows, seeds, strict=True)
        ]
        assert same_bits(whole.logprobs, np.concatenate([one.logprobs for one in single]))
        assert np.array_equal(whole.tokens, np.concatenate([one.tokens for one in single]))
        assert same_bits(whole.top_logprobs, np.concatenate([one.top_logprobs for one in single]))
        results.append(whole)
    assert same_bits(results[0].logprobs, results[1].logprobs)
    assert np.array_equal(results[0].tokens, results[1].tokens)
