"""The command `paceline`: flags become a config, a server starts. Imports little, so that it starts fast."""

import sys
from typing import Annotated

import typer

from paceline import __version__
from paceline.config import DEFAULT_MODEL, EngineConfig, ServeConfig, parse_bytes, parse_count
from paceline.errors import PacelineError
from paceline.server.start import serve_until_stopped
from paceline.vllm_flags import answer_foreign_flags

USAGE_EXIT_CODE = 2

app = typer.Typer(
    name="paceline",
    help="Serve large language models and keep every stream on pace.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def print_version(is_asked: bool) -> None:
    """Print the version and end."""
    if is_asked:
        typer.echo(f"paceline {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Serve large language models and keep every stream on pace."""


@app.command()
def serve(  # one parameter a flag is how typer reads a command line
    model: Annotated[str, typer.Argument(help="A short name, a path, or a name on the hub.")] = DEFAULT_MODEL,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8000,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name clients use; may be repeated. Default: MODEL.")
    ] = None,
    max_model_len: Annotated[str | None, typer.Option(help="Longest context. Default: the model's.")] = None,
    max_num_seqs: Annotated[str, typer.Option(help="Most sequences in one step.")] = "64",
    max_num_batched_tokens: Annotated[str, typer.Option(help="Most tokens in one step.")] = "256",
    max_num_queued_reqs: Annotated[str, typer.Option(help="Requests that may wait; more get 429.")] = "1024",
    block_size: Annotated[str, typer.Option(help="Tokens in a KV block.")] = "16",
    quantization: Annotated[
        str | None, typer.Option("--quantization", "-q", help="int8: faster, less exact. Default: as in the file.")
    ] = None,
    kv_cache_dtype: Annotated[str, typer.Option(help="auto, float32 or bfloat16.")] = "auto",
    enable_prefix_caching: Annotated[
        bool, typer.Option(help="Reuse the KV of prefixes computed before; answers do not depend on it.")
    ] = True,
    kv_memory: Annotated[str | None, typer.Option(help="Memory for the KV cache, such as 2GiB.")] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads. Default: the cores we may use.")] = None,
    isa: Annotated[str | None, typer.Option(help="avx512 or portable. Default: the best of this machine.")] = None,
    seed: Annotated[int | None, typer.Option(help="Base of the seeds of requests that bring none.")] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(envvar="PACELINE_API_KEY", help="Key that /v1 asks for; may be repeated.")
    ] = None,
    chat_template: Annotated[str | None, typer.Option(help="File with a chat template.")] = None,
    generation_config: Annotated[
        str, typer.Option(help="Sampling defaults: auto takes the model's, none (or vllm) the built-in ones.")
    ] = "auto",
    tool_call_parser: Annotated[
        str | None, typer.Option(help="hermes, llama3_json or mistral. Default: what the chat template speaks.")
    ] = None,
    reasoning_parser: Annotated[
        str | None, typer.Option(help="qwen3 or deepseek_r1: thoughts become reasoning_content.")
    ] = None,
    shutdown_timeout: Annotated[float, typer.Option(help="Seconds that running requests get to finish.")] = 30.0,
) -> None:
    """Serve MODEL over an OpenAI-compatible HTTP API."""
    engine = EngineConfig(
        model=model,
        revision=revision,
        max_model_len=None if max_model_len is None else parse_count("--max-model-len", max_model_len),
        max_num_seqs=parse_count("--max-num-seqs", max_num_seqs),
        max_num_batched_tokens=parse_count("--max-num-batched-tokens", max_num_batched_tokens),
        max_num_queued_reqs=parse_count("--max-num-queued-reqs", max_num_queued_reqs),
        block_size=parse_count("--block-size", block_size),
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        enable_prefix_caching=enable_prefix_caching,
        kv_memory_bytes=None if kv_memory is None else parse_bytes("--kv-memory", kv_memory),
        num_threads=threads,
        isa=isa,
    )
    config = ServeConfig(
        engine=engine,
        host=host,
        port=port,
        served_model_names=tuple(served_model_name or ()),
        api_keys=tuple(api_key or ()),
        chat_template=chat_template,
        generation_config=generation_config,
        seed=seed,
        shutdown_timeout_s=shutdown_timeout,
        tool_call_parser=tool_call_parser,
        reasoning_parser=reasoning_parser,
    )
    raise typer.Exit(serve_until_stopped(config))


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(context: typer.Context) -> None:
    """Measure any OpenAI-compatible server: run, sweep, goodput, hol, prefix, compare, replay, report."""
    # Imported here: a server starts without the libraries of the load generator.
    from paceline.bench.cli import app as bench_app

    bench_app(context.args, prog_name="paceline bench")


def main() -> None:
    """Entry point: one line for a user's mistake, never a traceback."""
    try:
        arguments, notes = sys.argv[1:], list[str]()
        if arguments[:1] != ["bench"]:
            arguments, notes = answer_foreign_flags(arguments)
        for note in notes:
            typer.echo(f"note: {note}", err=True)
        app(arguments)
    except PacelineError as error:
        typer.echo(f"paceline: {error.message}", err=True)
        sys.exit(USAGE_EXIT_CODE)


if __name__ == "__main__":
    main()
