"""What is printed at start: the facts a user needs to know what they may ask for, in plain lines."""

from paceline import __version__
from paceline.config import ServeConfig
from paceline.engine.contract import EngineLimits
from paceline.server.defaults import defaults_line
from paceline.text.defaults import SamplingDefaults

CONCURRENCY_CONTEXT_TOKENS = 2048


def summary_lines(config: ServeConfig, limits: EngineLimits, address: str, defaults: SamplingDefaults) -> list[str]:
    """The start-up summary."""
    context = min(CONCURRENCY_CONTEXT_TOKENS, limits.effective_context)
    concurrency = min(limits.pool_tokens // context, limits.max_num_seqs)
    speed = limits.expected_tokens_per_s
    facts = {
        "model": ", ".join(config.model_names),
        "context": f"{limits.effective_context:,} tokens",
        "weights": config.engine.quantization or "exactly as in the model file",
        "KV cache": f"{limits.pool_tokens:,} tokens in blocks of {limits.block_size}, {config.engine.stored_kv_dtype}",
        "concurrency": f"{concurrency} sequences of {context:,} tokens (at most {limits.max_num_seqs} a step)",
        "compute": f"{limits.instruction_set}, {limits.num_threads} threads",
        "expected speed": "not measured" if speed is None else f"{rounded(speed)} tokens/s for one stream",
        "sampling": defaults_line(defaults),
        "API keys": f"{len(config.api_keys)}" if config.api_keys else "none: everyone who reaches the port may use it",
    }
    width = max(map(len, facts))
    lines = [f"paceline {__version__}", *(f"  {name:<{width}}  {fact}" for name, fact in facts.items())]
    return [*lines, f"ready on {address}"]


def rounded(value: float) -> str:
    """A measured figure with no more digits than it deserves."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
