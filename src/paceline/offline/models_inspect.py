"""`paceline models inspect`: one model's files, and whether we serve them."""

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer

from paceline.config import parse_count
from paceline.errors import ConfigError
from paceline.models.resolve import resolve
from paceline.offline.inspection import Inspection, inspect_path
from paceline.offline.tables import bytes_text, print_facts, print_table, shown

NOT_SERVED_EXIT_CODE = 1
DEFAULT_CONTEXT = 8192
SENTENCE_CHARS = 1000
SIZE_WORDS = {
    "num_layers": "layers",
    "width": "width",
    "num_heads": "query heads",
    "num_kv_heads": "key/value heads",
    "head_width": "head width",
    "ff_width": "feed-forward width",
    "vocab_size": "vocabulary",
    "max_context": "context",
}


def inspect(
    model: Annotated[str, typer.Argument(help="A short name, a path, or a hub name that was pulled.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub name.")] = None,
    context: Annotated[str | None, typer.Option(help="Tokens to tell the memory for. Default: 8K, or less.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Sizes, tensors, memory and tokenizer of a model. Exit code 1: we don't serve it; the reason is told."""
    inspection = inspect_path(resolve(model, revision, local_only=True))
    num_tokens = context_of(inspection, context)
    if as_json:
        typer.echo(msgspec.json.encode(fields_of(model, inspection, num_tokens)))
    else:
        print_facts(facts_of(model, inspection, num_tokens))
        print_shares(inspection)
    if inspection.refusal is not None:
        raise typer.Exit(NOT_SERVED_EXIT_CODE)


def context_of(inspection: Inspection, context: str | None) -> int:
    """How many tokens the memory is told for. Raises ConfigError for more than the model reaches."""
    longest = inspection.sizes.get("max_context", DEFAULT_CONTEXT)
    num_tokens = min(longest, DEFAULT_CONTEXT) if context is None else parse_count("--context", context)
    if inspection.refusal is None and not 1 <= num_tokens <= longest:
        raise ConfigError(f"--context must be between 1 and the model's {longest}, got {num_tokens}")
    return num_tokens


def facts_of(model: str, inspection: Inspection, num_tokens: int) -> dict[str, str]:
    """What is told above the tensors."""
    sizes = {SIZE_WORDS[name]: f"{size:,}" for name, size in inspection.sizes.items()}
    served = "yes" if inspection.refusal is None else f"no: {shown(inspection.refusal, SENTENCE_CHARS)}"
    facts = {
        "model": shown(model),
        "path": shown(str(inspection.path)),
        "served": served,
        "format": inspection.format,
        "architecture": shown(inspection.architecture or "not stated"),
        **sizes,
        "parameters": f"{inspection.num_parameters:,}" if inspection.shares else "not readable",
        "weights": bytes_text(inspection.num_bytes) if inspection.shares else "not readable",
        **{f"KV, {kv_format}": told_kv(inspection, kv_format, num_tokens) for kv_format in inspection.kv_token_bytes},
        "tokenizer": shown(inspection.text.tokenizer or "none"),
        "chat template": "yes" if inspection.text.has_chat_template else "no",
    }
    return facts | ({"notes": shown("; ".join(inspection.notes), SENTENCE_CHARS)} if inspection.notes else {})


def told_kv(inspection: Inspection, kv_format: str, num_tokens: int) -> str:
    """The cache's price in one format."""
    token_bytes = inspection.kv_token_bytes[kv_format]
    return (
        f"{token_bytes:,} bytes a token; {bytes_text(token_bytes * num_tokens)} at {num_tokens:,} tokens, "
        f"{bytes_text(inspection.memory_bytes(kv_format, num_tokens))} with the weights"
    )


def print_shares(inspection: Inspection) -> None:
    """The tensors by name and kind."""
    rows: list[Sequence[str]] = [
        (
            shown(share.pattern),
            share.kind,
            f"{share.num_tensors:,}",
            f"{share.num_parameters:,}",
            bytes_text(share.num_bytes),
            f"{8 * share.num_bytes / share.num_parameters:.2f}",
        )
        for share in inspection.shares
    ]
    if rows:
        typer.echo()
        print_table(("tensors", "kind", "number", "parameters", "size", "bits each"), rows, num_left=2)


def fields_of(model: str, inspection: Inspection, num_tokens: int) -> dict[str, object]:
    """Everything, as JSON fields."""
    return {
        "model": model,
        "path": str(inspection.path),
        "is_served": inspection.refusal is None,
        "refusal": inspection.refusal,
        "format": inspection.format,
        "architecture": inspection.architecture,
        **inspection.sizes,
        "num_parameters": inspection.num_parameters,
        "num_bytes": inspection.num_bytes,
        "context_tokens": num_tokens,
        "kv": {
            kv_format: {
                "token_bytes": token_bytes,
                "context_bytes": token_bytes * num_tokens,
                "memory_bytes": inspection.memory_bytes(kv_format, num_tokens),
            }
            for kv_format, token_bytes in inspection.kv_token_bytes.items()
        },
        "tokenizer": inspection.text.tokenizer,
        "has_chat_template": inspection.text.has_chat_template,
        "notes": inspection.notes,
        "tensors": inspection.shares,
    }
