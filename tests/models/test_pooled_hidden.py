"""Pooled hidden states of a tiny random Llama are those of transformers in float32."""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_checkpoints import BLOCK_SIZE, make_model, make_session, save_model, tokens_of

from paceline.core.kv import KvManager
from paceline.core.loop import StepLoop
from paceline.core.policy import LearnedReserve
from paceline.core.request import Pooling, Request, RequestId, StopRule, token_array
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.model import ModelExecutor
from paceline.exec.rows import RowTable
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.ops.protocol import Backend

TOLERANCE = 1e-4
CHUNK_TOKENS = 33


def pooled_state(path: Path, backend: Backend, tokens: list[int], pooling: Pooling) -> NDArray[np.float32]:
    """Through scheduler and executor, in chunks."""
    num_blocks = -(-len(tokens) // BLOCK_SIZE)
    checkpoint = DirectoryCheckpoint(path)
    session = make_session(checkpoint, backend, len(tokens))
    limits = SchedulerLimits(max_num_seqs=1, max_step_tokens=CHUNK_TOKENS, max_context=len(tokens))
    scheduler = Scheduler(limits, KvManager(num_blocks, BLOCK_SIZE), LearnedReserve(BLOCK_SIZE))
    table, compiler = RowTable(1, len(tokens), num_blocks), GrammarCompiler(checkpoint.spec.vocab_size)
    loop = StepLoop(scheduler, ModelExecutor(session, table, compiler))
    scheduler.submit(Request(RequestId(1), token_array(tokens), StopRule(0), pooling=pooling))
    outputs = [output for _ in range(-(-len(tokens) // CHUNK_TOKENS)) for output in loop.step()]
    assert [output.finish_reason is not None for output in outputs] == [True]
    assert outputs[0].pooled is not None
    return np.frombuffer(outputs[0].pooled, np.float32)


@pytest.mark.parametrize("pooling", list(Pooling))
def test_pooled_states_equal_transformers(pooling: Pooling, backend: Backend, tmp_path: Path) -> None:
    model, tokens = make_model("llama"), tokens_of(100)
    with torch.no_grad():
        hidden = model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].double().numpy()
    expected = hidden[-1] if pooling is Pooling.LAST else hidden.mean(axis=0)
    ours = pooled_state(save_model(model, tmp_path), backend, tokens, pooling)
    error = float(np.abs(ours - expected).max() / np.abs(expected).max())
    print(f"{pooling}, {backend.isa}: relative error {error:.1e}")
    assert error <= TOLERANCE
