"""The command `paceline`: flags become a config, a server starts. Imports little, so that it starts fast."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from paceline import __version__
from paceline.config import DEFAULT_MODEL, EngineConfig, ServeConfig, parse_bytes, parse_count
from paceline.errors import PacelineError
from paceline.server.keys import read_key_file
from paceline.server.start import serve_until_stopped
from paceline.vllm_flags import answer_foreign_flags

USAGE_EXIT_CODE = 2
PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
OFFLINE_COMMANDS = {
    "batch": "Answer a file of requests, as OpenAI's batch API has them.",
    "run-batch": "The same, with -i and -o.",
    "chat": "Chat in the terminal with a model, or with any server.",
    "models": "List models at hand, pull one from the hub, inspect one.",
    "eval": "Perplexity of your own text, and how far another format of the model is from it.",
}
# The others start a server, so flags that a server of vLLM has may come.
TAKE_OTHER_FLAGS = (["bench"], ["chat"], ["models"], ["eval"], ["plan"], ["simulate"], ["replay"])

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
    kv_cache_dtype: Annotated[str, typer.Option(help="auto (bfloat16), float32, bfloat16 or int8.")] = "auto",
    enable_prefix_caching: Annotated[
        bool, typer.Option(help="Reuse the KV of prefixes computed before; answers do not depend on it.")
    ] = True,
    kv_memory: Annotated[str | None, typer.Option(help="Memory for the KV cache, such as 2GiB.")] = None,
    threads: Annotated[int | None, typer.Option(help="Compute threads. Default: the cores we may use.")] = None,
    isa: Annotated[str | None, typer.Option(help="avx512, avx2 or portable. Default: the best here.")] = None,
    record: Annotated[str | None, typer.Option(help="File to append the scheduler's inputs to, for replay.")] = None,
    pooling_type: Annotated[
        str | None, typer.Option(help="last or mean, for /v1/embeddings. Default: the model's own, else mean.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Base of the seeds of requests that bring none.")] = None,
    api_key: Annotated[
        list[str] | None, typer.Option(envvar="PACELINE_API_KEY", help="Key that /v1 asks for; may be repeated.")
    ] = None,
    api_key_file: Annotated[str | None, typer.Option(help="File with API keys, one a line.")] = None,
    rate_limit_requests: Annotated[str | None, typer.Option(help="Requests a minute that a key may send.")] = None,
    rate_limit_tokens: Annotated[str | None, typer.Option(help="Tokens a minute that a key may use.")] = None,
    allowed_origins: Annotated[
        list[str] | None, typer.Option(help="Origin whose pages may call us (CORS), or *; may be repeated.")
    ] = None,
    uds: Annotated[str | None, typer.Option(help="Listen on this unix socket instead of host and port.")] = None,
    log_format: Annotated[str, typer.Option(help="plain or json: one line a request, on standard error.")] = "plain",
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
    request_timeout: Annotated[
        float | None, typer.Option(help="Seconds a request may take, arrival to last token. Default: no limit.")
    ] = None,
    live_timeout: Annotated[
        float, typer.Option(help="Seconds without a step after which a busy engine is restarted; 0: never.")
    ] = 60.0,
) -> None:
    """Serve MODEL over an OpenAI-compatible HTTP API."""
    engine = EngineConfig(
        model=model,
        revision=revision,
        max_model_len=optional_count("--max-model-len", max_model_len),
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
        record=record,
        pooling_type=pooling_type,
    )
    config = ServeConfig(
        engine=engine,
        host=host,
        port=port,
        served_model_names=tuple(served_model_name or ()),
        api_keys=(*(api_key or ()), *(read_key_file(api_key_file) if api_key_file else ())),
        rate_limit_requests=optional_count("--rate-limit-requests", rate_limit_requests),
        rate_limit_tokens=optional_count("--rate-limit-tokens", rate_limit_tokens),
        allowed_origins=tuple(allowed_origins or ()),
        uds=uds,
        log_format=log_format,
        chat_template=chat_template,
        generation_config=generation_config,
        seed=seed,
        shutdown_timeout_s=shutdown_timeout,
        request_timeout_s=request_timeout,
        live_timeout_s=live_timeout,
        tool_call_parser=tool_call_parser,
        reasoning_parser=reasoning_parser,
    )
    raise typer.Exit(serve_until_stopped(config))


def optional_count(name: str, text: str | None) -> int | None:
    """A count, when one is given."""
    return None if text is None else parse_count(name, text)


@app.command(add_help_option=False, context_settings=PASSED_ON)
def bench(context: typer.Context) -> None:
    """Measure any OpenAI-compatible server: run, sweep, goodput, hol, prefix, compare, replay, report."""
    # Imported here: a server starts without the libraries of the load generator.
    from paceline.bench.cli import app as bench_app

    bench_app(context.args, prog_name="paceline bench")


@app.command(add_help_option=False, context_settings=PASSED_ON)
def plan(context: typer.Context) -> None:
    """From a model, a load and targets to a fleet and its price; or when speculation pays."""
    from paceline.planning.cli import run_plan

    run_plan(context.args)


@app.command(add_help_option=False, context_settings=PASSED_ON)
def simulate(context: typer.Context) -> None:
    """Run the scheduler on a virtual clock: what would another policy, load or fleet do?"""
    from paceline.sim.cli import app as simulate_app

    simulate_app(context.args, prog_name="paceline simulate")


@app.command()
def replay(
    file: Annotated[Path, typer.Argument(help="What a server wrote with --record.")],
    fit: Annotated[Path | None, typer.Option(help="File for a step time fitted to the recorded steps.")] = None,
) -> None:
    """Feed recorded inputs to a fresh scheduler, and compare its plans with those of the recording."""
    from paceline.sim.replay_command import replay_recording

    raise typer.Exit(replay_recording(file, fit))


def offline(context: typer.Context) -> None:
    """Hand the command, whichever it is, to the application of those that need no server."""
    # Imported here: a server starts without them.
    from paceline.offline.cli import app as offline_app

    offline_app([str(context.info_name), *context.args], prog_name="paceline")


for command_name, about in OFFLINE_COMMANDS.items():
    app.command(command_name, help=about, add_help_option=False, context_settings=PASSED_ON)(offline)


def main() -> None:
    """Entry point: one line for a user's mistake, never a traceback."""
    try:
        arguments, notes = sys.argv[1:], list[str]()
        if arguments[:1] not in TAKE_OTHER_FLAGS:
            arguments, notes = answer_foreign_flags(arguments)
        for note in notes:
            typer.echo(f"note: {note}", err=True)
        app(arguments)
    except PacelineError as error:
        typer.echo(f"paceline: {error.message}", err=True)
        sys.exit(USAGE_EXIT_CODE)


if __name__ == "__main__":
    main()
