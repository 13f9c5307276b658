"""From a configuration to a running engine: open the checkpoint, pack weights, size the KV pool, warm up.

Every size is decided here and printed at start; nothing is decided twice.
"""

import logging
import statistics
import time
from pathlib import Path

import numpy as np

from paceline.config import EngineConfig
from paceline.core.kv import KvManager
from paceline.core.policy import LearnedReserve, Reserve
from paceline.core.request import Pooling
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.engine.contract import EngineLimits
from paceline.engine.engine import Engine
from paceline.engine.grammars import GrammarQueue
from paceline.engine.journal import Journal
from paceline.engine.machine import usable_cores, usable_memory_bytes
from paceline.errors import ConfigError
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.model import ModelExecutor
from paceline.exec.rows import RowTable
from paceline.models.declared_pooling import declared_pooling
from paceline.models.resolve import open_checkpoint, resolve
from paceline.models.spec import ModelSpec
from paceline.models.transformer import load_model
from paceline.ops.protocol import Backend, Batch, KvFormat, KvLayout, Session, SessionShape

log = logging.getLogger(__name__)

KV_MEMORY_SHARE = 0.25
WARM_UP_STEPS = 8
DEFAULT_POOLING = Pooling.MEAN


def load_engine(config: EngineConfig, reserve: Reserve | None = None) -> Engine:
    """Load the model and everything around it; `reserve` replaces the learned growth reserve (comparisons).

    Raises CheckpointError or ConfigError.
    """
    journal = None if config.record is None else Journal(Path(config.record))
    checkpoint = open_checkpoint(resolve(config.model, config.revision))
    spec = checkpoint.spec
    for note in checkpoint.notes:
        log.warning("%s", note)
    max_context = _context(config, spec)
    backend = make_backend(config.num_threads or usable_cores(), config.isa, config.quantization)
    layout = kv_layout(config, spec, max_context)
    model = load_model(checkpoint, backend, max_context)
    session = backend.session(model, SessionShape(config.max_num_batched_tokens, config.max_num_seqs, layout))
    kv = KvManager(layout.num_blocks, layout.block_size)
    scheduler = Scheduler(
        SchedulerLimits(config.max_num_seqs, config.max_num_batched_tokens, max_context),
        kv,
        reserve or LearnedReserve(layout.block_size),
    )
    table = RowTable(config.max_num_seqs, max_context, kv.blocks_for(max_context))
    limits = EngineLimits(
        effective_context=scheduler.effective_context,
        pool_tokens=kv.pool_tokens,
        block_size=layout.block_size,
        max_num_seqs=config.max_num_seqs,
        vocab_size=spec.vocab_size,
        instruction_set=backend.isa,
        num_threads=config.num_threads or usable_cores(),
        expected_tokens_per_s=warm_up(session, table),
        embedding_width=spec.width,
        pooling=Pooling(config.pooling_type or declared_pooling(checkpoint.path) or DEFAULT_POOLING),
    )
    compiler = GrammarCompiler(spec.vocab_size)
    executor = ModelExecutor(session, table, compiler)
    return Engine(scheduler, executor, GrammarQueue(compiler), limits, config, journal)


def make_backend(num_threads: int, isa: str | None, quantization: str | None = None) -> Backend:
    """Native kernels when they were built, else the NumPy reference, said loudly."""
    try:
        from paceline.ops.cpu import CpuBackend
    except ImportError as error:
        for flag, value in (("--isa", isa), ("--quantization", quantization)):
            if value is not None:
                raise ConfigError(f"{flag} {value} needs the native kernels, not installed here ({error})") from None
        from paceline.ops.reference import ReferenceBackend

        log.warning(
            "NATIVE KERNELS ARE NOT INSTALLED: serving on the NumPy reference, about a hundred times slower. "
            "Install a C++ compiler and reinstall paceline. (%s)",
            error,
        )
        return ReferenceBackend()
    return CpuBackend(num_threads, isa, per_channel=quantization == "int8")


def kv_token_bytes(spec: ModelSpec, kv_format: KvFormat) -> int:
    """Keys and values of one token in every layer."""
    return 2 * spec.num_layers * spec.num_kv_heads * kv_format.vector_bytes(spec.head_width)


def kv_layout(config: EngineConfig, spec: ModelSpec, max_context: int) -> KvLayout:
    """The pool: `--kv-memory`, else a quarter of usable memory, and never more than every row at full context needs."""
    kv_format = KvFormat(config.stored_kv_dtype)
    token_bytes = kv_token_bytes(spec, kv_format)
    budget = config.kv_memory_bytes or int(usable_memory_bytes() * KV_MEMORY_SHARE)
    row_blocks = -(-max_context // config.block_size)
    num_blocks = min(budget // (token_bytes * config.block_size), row_blocks * config.max_num_seqs)
    if num_blocks < 1:
        raise ConfigError(
            f"--kv-memory {budget} bytes holds no block: one takes {token_bytes * config.block_size} bytes "
            f"({config.block_size} tokens of {token_bytes} bytes); give more memory or a smaller --block-size"
        )
    return KvLayout(spec.num_layers, int(num_blocks), config.block_size, spec.num_kv_heads, spec.head_width, kv_format)


def warm_up(session: Session, table: RowTable) -> float:
    """Decode steps per second of one stream with little context: measured, so that the summary's figure is not a guess.

    Touches block 0, whose content nobody has published.
    """
    one = np.zeros(1, np.int32)
    batch = Batch(one, one, np.array([0, 1], np.int32), one, table.block_tables)
    durations_s = []
    for _ in range(WARM_UP_STEPS):
        start_s = time.perf_counter()
        session.forward(batch)
        session.logits(one)
        durations_s.append(time.perf_counter() - start_s)
    return 1.0 / statistics.median(durations_s)


def _context(config: EngineConfig, spec: ModelSpec) -> int:
    if config.max_model_len is not None and config.max_model_len > spec.max_context:
        raise ConfigError(f"--max-model-len {config.max_model_len} is over the model's {spec.max_context} tokens")
    return config.max_model_len or spec.max_context
