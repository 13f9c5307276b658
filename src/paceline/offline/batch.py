"""`paceline batch IN.jsonl OUT.jsonl`, and `run-batch -i IN -o OUT` as users of vLLM type it."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.config import DEFAULT_MODEL, EngineConfig, parse_count
from paceline.errors import ConfigError
from paceline.offline.batch_files import OutputFile, read_contents, read_requests
from paceline.offline.batch_ledger import Ledger
from paceline.offline.batch_progress import BatchProgress
from paceline.offline.batch_run import AskedServer, run_batch
from paceline.offline.endpoint import Endpoint, parse_url
from paceline.offline.grouped import grouped
from paceline.offline.private_server import private_server

# A private server's step is full with half of these; the other half waits at its door.
REQUESTS_PER_SEQUENCE = 2
DEFAULT_CONCURRENCY = 64
MAX_CONCURRENCY = 4096
INTERRUPTED_EXIT_CODE = 130


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """Where the answers come from: the server at `url`, or one of our own."""

    model: Annotated[str | None, typer.Option(help="Model to serve. Default: the one the first line names.")] = None
    url: Annotated[str | None, typer.Option(help="Ask this server instead of one of our own.")] = None
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Key to send, with --url.")] = None
    concurrency: Annotated[
        int | None, typer.Option(help="Requests in flight. Default: twice the sequences of a step; 64 with --url.")
    ] = None


@grouped
def batch(
    context: typer.Context,
    source: Annotated[Path, typer.Argument(metavar="IN.jsonl", help="Requests, as OpenAI's batch API takes them.")],
    target: Annotated[Path, typer.Argument(metavar="OUT.jsonl", help="Answers; grows, and is gone on with.")],
    options: BatchOptions,
) -> None:
    """Answer a file of requests; run again after a crash to go on. Options of `paceline serve` may follow OUT."""
    answer_file(source, target, options, context.args)


@grouped
def run_batch_command(
    context: typer.Context,
    source: Annotated[Path, typer.Option("--input-file", "-i", help="As IN of `paceline batch`.")],
    target: Annotated[Path, typer.Option("--output-file", "-o", help="As OUT.")],
    options: BatchOptions,
) -> None:
    """`paceline batch`, as users of vLLM type it."""
    answer_file(source, target, options, context.args)


def answer_file(source: Path, target: Path, options: BatchOptions, serve_options: Sequence[str]) -> None:
    """The whole command."""
    check_files(source, target)
    check_options(options, serve_options)
    with closing(Ledger()) as ledger:
        contents = read_contents(source, ledger)
        with OutputFile(target) as output:
            num_before = output.resume(ledger)
            if num_before == contents.num_lines:
                typer.echo(f"all {num_before:,} lines were answered before", err=True)
                return
            model = options.model or contents.model or DEFAULT_MODEL
            lines = (line for line in read_requests(source) if not ledger.is_answered(line.number))
            progress = BatchProgress(Console(stderr=True), contents.num_lines, num_before)
            try:
                with asked_server(model, options, serve_options) as server, progress:
                    asyncio.run(run_batch(lines, server, output, progress))
            except KeyboardInterrupt:
                raise typer.Exit(INTERRUPTED_EXIT_CODE) from None


def check_files(source: Path, target: Path) -> None:
    """Raise ConfigError for what can be seen before anything is read."""
    first = next((str(path) for path in (source, target) if str(path).startswith("-")), None)
    if first is not None:
        raise ConfigError(f"IN.jsonl and OUT.jsonl come first, options of `paceline serve` after them; got {first!r}")
    if not source.is_file():
        raise ConfigError(f"batch input {source} is no file (it is read twice, so it can't be a pipe)")
    if target.exists() and (not target.is_file() or target.samefile(source)):
        raise ConfigError(f"batch output {target} must be a file of its own, to append to")


def check_options(options: BatchOptions, serve_options: Sequence[str]) -> None:
    """Raise ConfigError for options that don't go together."""
    if options.url is not None and (options.model is not None or serve_options):
        extra = "--model" if options.model is not None else serve_options[0]
        raise ConfigError(f"{extra} is for a server of our own; with --url the server and the lines' bodies decide")
    if options.concurrency is not None and not 1 <= options.concurrency <= MAX_CONCURRENCY:
        raise ConfigError(f"--concurrency must be between 1 and {MAX_CONCURRENCY}, got {options.concurrency}")


@contextmanager
def asked_server(model: str, options: BatchOptions, serve_options: Sequence[str]) -> Iterator[AskedServer]:
    """The server at --url, else one for this batch alone."""
    if options.url is not None:
        endpoint = Endpoint(parse_url(options.url), options.api_key)
        yield AskedServer(endpoint, options.concurrency or DEFAULT_CONCURRENCY, lambda: None)
        return
    concurrency = options.concurrency or REQUESTS_PER_SEQUENCE * num_sequences(serve_options)
    with private_server(model, serve_options) as server:
        yield AskedServer(server.endpoint, concurrency, server.check_alive)


def num_sequences(serve_options: Sequence[str]) -> int:
    """Sequences of a step: what --max-num-seqs says among the server's options, else its default."""
    for index, option in enumerate(serve_options):
        name, has_value, value = option.partition("=")
        if name == "--max-num-seqs" and (has_value or index + 1 < len(serve_options)):
            return parse_count(name, value if has_value else serve_options[index + 1])
    return EngineConfig().max_num_seqs
