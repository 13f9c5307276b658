"""The transformer through a session: chunks, sampling, positions; and the real model against transformers (B059)."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_checkpoints import make_model, make_session, our_logits, relative_error, save_model, tokens_of

from dequantized_model import transformers_model
from paceline.errors import CheckpointError
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.resolve import open_checkpoint, resolve
from paceline.models.transformer import load_model
from paceline.ops.protocol import Backend, Batch, SampleBatch
from paceline.ops.reference import ReferenceBackend
from paceline.ops.reference_sampling import sample_row


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> DirectoryCheckpoint:
    return DirectoryCheckpoint(save_model(make_model("mistral", sliding_window=24), tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize("chunk_tokens", [1, 7, 32])
def test_bits_do_not_depend_on_chunks(chunk_tokens: int, checkpoint: DirectoryCheckpoint, backend: Backend) -> None:
    tokens = tokens_of(60)
    whole = our_logits(checkpoint, backend, tokens)
    assert np.array_equal(our_logits(checkpoint, backend, tokens, chunk_tokens).view(np.uint32), whole.view(np.uint32))


def test_sampling_follows_the_logits(checkpoint: DirectoryCheckpoint, backend: Backend) -> None:
    """Entry 0 is greedy, entry 1 scores token 5; both of the token rows asked for."""
    tokens = np.array(tokens_of(20), np.int32)
    table = np.arange(2, dtype=np.int32)[None]
    session = make_session(checkpoint, backend, 20)
    positions = np.arange(20, dtype=np.int32)
    session.forward(Batch(tokens, positions, np.array([0, 20], np.int32), np.zeros(1, np.int32), table))
    rows = np.array([19, 3], np.int32)
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    integers = np.zeros(2, np.int32)
    batch = SampleBatch(
        token_rows=rows,
        targets=np.array([-1, 5], np.int32),
        slots=integers,
        num_known=rows + 1,
        num_prompt=rows + 1,
        temperature=zeros,
        top_k=integers,
        top_p=ones,
        min_p=zeros,
        repetition=ones,
        presence=zeros,
        frequency=zeros,
        seeds=np.zeros(2, np.uint64),
        num_top=np.array([2, 0], np.int32),
        bias_starts=np.zeros(3, np.int32),
        bias_ids=np.zeros(0, np.int32),
        bias_values=np.zeros(0, np.float32),
        mask_rows=np.full(2, -1, np.int32),
        masks=np.zeros((0, 3), np.uint32),
        histories=tokens[None].copy(),
    )
    result = session.sample(batch)
    logprobs = torch.tensor(session.logits(rows)).log_softmax(-1).numpy()
    assert result.tokens.tolist() == [int(logprobs[0].argmax()), 5]
    assert np.allclose(result.logprobs, [logprobs[0].max(), logprobs[1, 5]], atol=1e-5)
    assert result.top_ids[0].tolist() == np.argsort(-logprobs[0])[:2].tolist()
    assert result.top_ids[1].tolist() == [-1, -1]


def test_draws_equal_the_references(checkpoint: DirectoryCheckpoint, backend: Backend) -> None:
    """300 draws with random settings: the same tokens as the reference draws from the same logits."""
    num_draws, tokens, generator = 300, np.array(tokens_of(20), np.int32), np.random.default_rng(11)
    session = make_session(checkpoint, backend, 20)
    positions, table = np.arange(20, dtype=np.int32), np.arange(2, dtype=np.int32)[None]
    session.forward(Batch(tokens, positions, np.array([0, 20], np.int32), np.zeros(1, np.int32), table))

    def choices(*values: float, dtype: type = np.float32) -> Any:
        return generator.choice(values, num_draws).astype(dtype)

    batch = SampleBatch(
        token_rows=generator.integers(0, 20, num_draws).astype(np.int32),
        targets=np.full(num_draws, -1, np.int32),
        slots=np.zeros(num_draws, np.int32),
        num_known=generator.integers(10, 20, num_draws).astype(np.int32),
        num_prompt=generator.integers(1, 10, num_draws).astype(np.int32),
        temperature=choices(0.0, 0.5, 1.0, 2.0),
        top_k=choices(0, 1, 5, 40, dtype=np.int32),
        top_p=choices(0.3, 0.9, 1.0),
        min_p=choices(0.0, 0.1),
        repetition=choices(1.0, 1.3),
        presence=choices(0.0, 1.0),
        frequency=choices(0.0, 0.5),
        seeds=generator.integers(0, 1 << 64, num_draws, dtype=np.uint64),
        num_top=choices(0, 3, dtype=np.int32),
        bias_starts=np.arange(num_draws + 1, dtype=np.int32),
        bias_ids=generator.integers(0, 96, num_draws).astype(np.int32),
        bias_values=choices(-100.0, 0.0, 5.0, -np.inf),
        mask_rows=generator.integers(-1, 4, num_draws).astype(np.int32),
        masks=generator.integers(1, 1 << 32, (4, 3), dtype=np.uint32),
        histories=tokens[None].copy(),
    )
    result = session.sample(batch)
    expected = replace(result, **{field.name: getattr(result, field.name).copy() for field in fields(result)})
    logits = session.logits(batch.token_rows).astype(np.float64)
    for index in range(num_draws):
        sample_row(batch, index, logits[index], expected)
    assert np.array_equal(result.tokens, expected.tokens)
    assert np.array_equal(result.top_ids, expected.top_ids)
    assert np.allclose(result.logprobs, expected.logprobs, atol=1e-5)
    assert len(set(result.tokens.tolist())) > 20


def test_copied_blocks_continue_as_the_original(checkpoint: DirectoryCheckpoint, backend: Backend) -> None:
    """A second row whose prefix is a copied block gives the first row's logits, to the bit."""
    tokens = np.array(tokens_of(12), np.int32)
    session = make_session(checkpoint, backend, 40)
    table = np.array([[0], [2]], np.int32)

    def last_logits(slot: int, start: int) -> Any:
        count = len(tokens) - start
        positions = np.arange(start, len(tokens), dtype=np.int32)
        row_starts, slots = np.array([0, count], np.int32), np.array([slot], np.int32)
        session.forward(Batch(tokens[start:], positions, row_starts, slots, table))
        return session.logits(np.array([count - 1], np.int32))

    original = last_logits(0, 0)
    session.copy_blocks(np.array([[0, 1, 10], [1, 2, 10]], np.int32))
    assert np.array_equal(last_logits(1, 10), original)


def test_tied_weights_are_held_once(tmp_path: Path) -> None:
    path = save_model(make_model("llama", tie_word_embeddings=True), tmp_path)
    model = load_model(DirectoryCheckpoint(path), ReferenceBackend())
    assert model.weights.head is model.weights.embedding


PROMPT = "<|im_start|> user Ċ What Ġis Ġthe Ġcapital Ġof ĠFrance ? <|im_end|> Ċ <|im_start|> ass istant Ċ"


def test_b059_smollm2_continues_as_transformers_does() -> None:
    """50 greedy tokens of transformers' reading of the file are each our most likely one too."""
    try:
        path = resolve("smollm2-135m")
    except CheckpointError as error:
        pytest.skip(error.message)
    checkpoint = open_checkpoint(path)
    vocabulary = checkpoint.tokenizer_source["tokenizer.ggml.tokens"]  # type: ignore[index]
    prompt = PROMPT.split()
    model = transformers_model(path, checkpoint.spec)
    ids = torch.tensor([[vocabulary.index(token) for token in prompt]])
    mask = torch.ones_like(ids)
    model.generation_config.eos_token_id = None
    tokens = model.generate(ids, attention_mask=mask, max_new_tokens=50, do_sample=False)
    with torch.no_grad():
        expected = model(tokens).logits[0].numpy()
    logits = our_logits(checkpoint, ReferenceBackend(), tokens[0].tolist())
    assert relative_error(logits, expected) <= 1e-4
    assert np.array_equal(logits.argmax(1)[len(prompt) - 1 : -1], tokens[0, len(prompt) :].numpy())
