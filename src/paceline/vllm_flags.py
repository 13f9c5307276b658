"""Flags that users of vLLM type and `paceline serve` does not have: each is answered in one line, none is guessed at.

A flag whose wish is fulfilled anyway, or has no object here, gives a note; one that would change what is served and
can't be honoured stops the start, so that nobody serves something else than they asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ForeignFlag:
    """How one flag is answered. `stops`: whether it ends the start."""

    answer: str
    takes_value: bool = False
    stops: bool = False


ALWAYS = ForeignFlag("always on")
ONE_REPLICA = ForeignFlag("this server runs one replica on one machine; leave it out", takes_value=True, stops=True)
GPU = ForeignFlag("set the KV cache's memory with --kv-memory instead", takes_value=True)
LATER = ForeignFlag("not supported by this version; leave it out", takes_value=True, stops=True)
QUIET = ForeignFlag("has no object here")
BOTH = ForeignFlag("every model generates and embeds", takes_value=True)
POOLER = ForeignFlag("set the pooling with --pooling-type last or mean", takes_value=True, stops=True)

FOREIGN_FLAGS = {
    "--enable-chunked-prefill": ALWAYS,
    "--no-enable-chunked-prefill": ForeignFlag("chunking can't be switched off; answers do not depend on it"),
    "--gpu-memory-utilization": GPU,
    "--swap-space": GPU,
    "--cpu-offload-gb": GPU,
    "--num-gpu-blocks-override": GPU,
    "--dtype": ForeignFlag("weights are served in the precision of the model file", takes_value=True),
    "--load-format": ForeignFlag("the format is read from the files", takes_value=True),
    "--tokenizer": LATER,
    "--tensor-parallel-size": ONE_REPLICA,
    "-tp": ONE_REPLICA,
    "--pipeline-parallel-size": ONE_REPLICA,
    "-pp": ONE_REPLICA,
    "--data-parallel-size": ONE_REPLICA,
    "-dp": ONE_REPLICA,
    "--trust-remote-code": ForeignFlag("code from model repositories is never run"),
    "--enforce-eager": QUIET,
    "--disable-log-requests": ForeignFlag("a line a finished request is always logged, without what was said"),
    "--disable-log-stats": ForeignFlag("a line every 10 s is always logged while there is traffic"),
    "--enable-request-id-headers": ALWAYS,
    "--enable-lora": ForeignFlag("adapters are not supported by this version; leave it out", stops=True),
    "--lora-modules": LATER,
    "--speculative-config": LATER,
    "--enable-auto-tool-choice": ALWAYS,
    "--kv-transfer-config": LATER,
    "--ssl-keyfile": ForeignFlag("terminate TLS in a proxy in front", takes_value=True, stops=True),
    "--ssl-certfile": ForeignFlag("terminate TLS in a proxy in front", takes_value=True, stops=True),
    "--scheduling-policy": ForeignFlag("arrival order, with `priority` of a request before it", takes_value=True),
    "--task": BOTH,
    "--runner": BOTH,
    "--convert": BOTH,
    "--pooler-config": POOLER,
    "--override-pooler-config": POOLER,
    "--enable-metrics": ALWAYS,
    "--uvicorn-log-level": ForeignFlag("has no object here", takes_value=True),
}


def answer_foreign_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take the foreign flags out of a command line: (what remains, a note for each). Raises ConfigError for some."""
    remaining: list[str] = []
    notes: list[str] = []
    queue = list(arguments)
    while queue:
        argument = queue.pop(0)
        name, has_value, _ = argument.partition("=")
        flag = FOREIGN_FLAGS.get(name)
        if flag is None:
            remaining.append(argument)
            continue
        if flag.takes_value and not has_value and queue:
            queue.pop(0)
        if flag.stops:
            raise ConfigError(f"{name}: {flag.answer}")
        notes.append(f"{name}: {flag.answer}")
    return remaining, notes
