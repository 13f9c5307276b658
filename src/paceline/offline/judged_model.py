"""A model opened to be judged: the served kernels and KV format, without scheduler or sampler."""

from dataclasses import dataclass, replace

from paceline.config import EngineConfig
from paceline.engine.loading import kv_layout, make_backend
from paceline.engine.machine import usable_cores
from paceline.errors import ConfigError
from paceline.models.resolve import open_checkpoint, resolve
from paceline.models.transformer import load_model
from paceline.offline.windows import WindowLogits
from paceline.ops.protocol import SessionShape
from paceline.text.model_text import load_model_text
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class JudgedModel:
    """Logits of windows, and the tokenizer that makes them."""

    logits: WindowLogits
    tokenizer: Tokenizer


def open_judged(config: EngineConfig, window: int) -> JudgedModel:
    """Load a model for one window of so many tokens at a time. Raises CheckpointError, or ConfigError for a window that
    is too long.
    """
    config = replace(config, max_num_seqs=1)
    checkpoint = open_checkpoint(resolve(config.model, config.revision))
    spec = checkpoint.spec
    if not 2 <= window <= spec.max_context:
        raise ConfigError(f"--window must be between 2 and the model's {spec.max_context} tokens, got {window}")
    layout = kv_layout(config, spec, window)
    if layout.num_blocks * layout.block_size < window:
        raise ConfigError(f"--window {window} does not fit the memory that a KV cache may have here; shorten it")
    backend = make_backend(config.num_threads or usable_cores(), config.isa, config.quantization)
    model = load_model(checkpoint, backend, window)
    session = backend.session(model, SessionShape(config.max_num_batched_tokens, config.max_num_seqs, layout))
    logits = WindowLogits(session, layout.num_blocks, config.max_num_batched_tokens, spec.vocab_size)
    return JudgedModel(logits, load_model_text(config.model, config.revision).tokenizer)


def check_same_vocabulary(reference: JudgedModel, candidate: JudgedModel, text: str) -> None:
    """Raise ConfigError unless both have the same tokens and cut this text alike."""
    ours, theirs = reference.logits.vocab_size, candidate.logits.vocab_size
    if ours != theirs:
        raise ConfigError(
            f"the models have vocabularies of {ours} and {theirs} tokens; only equal ones can be compared"
        )
    first, second = reference.tokenizer, candidate.tokenizer
    for token_id in range(ours):
        if first.token_bytes(token_id) != second.token_bytes(token_id):
            raise ConfigError(
                f"token {token_id} is {first.token_text(token_id)!r} for one model and "
                f"{second.token_text(token_id)!r} for the other; only equal vocabularies can be compared"
            )
    if first.encode(text, add_special_tokens=True) != second.encode(text, add_special_tokens=True):
        raise ConfigError("the models' tokenizers cut the text differently; only equal ones can be compared")


def first_tokens(tokenizer: Tokenizer) -> list[int]:
    """What the tokenizer puts before every text: its beginning token, or nothing."""
    bos_id = tokenizer.bos_id
    adds = bos_id is not None and tokenizer.encode("a", add_special_tokens=True)[0] == bos_id
    return [bos_id] if adds and bos_id is not None else []
