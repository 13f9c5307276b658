"""`paceline chat`: a conversation in the terminal, or answers to the lines of a pipe."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console

from paceline.config import DEFAULT_MODEL
from paceline.errors import ConfigError, PacelineError
from paceline.offline.chat_conversation import Conversation, told
from paceline.offline.chat_stream import Piece, first_model
from paceline.offline.endpoint import Endpoint, parse_url
from paceline.offline.grouped import grouped
from paceline.offline.private_server import private_server

EXIT = "/exit"
HELP = "/reset forgets the conversation, /stats shows what answers took, /exit or Ctrl-D ends; Ctrl-C stops an answer"
FAILED_EXIT_CODE = 1
# What a model writes must not move the cursor or rename the window.
CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}") | {10: "\n", 9: "\t"}


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Which server, and what every request of the chat says."""

    url: Annotated[str | None, typer.Option(help="Ask this server instead of one of our own.")] = None
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Key to send, with --url.")] = None
    system: Annotated[str | None, typer.Option(help="System prompt.")] = None
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer. Default: what the context leaves.")] = None
    temperature: Annotated[float | None, typer.Option(help="Default: the server's.")] = None
    seed: Annotated[int | None, typer.Option(help="For answers that can be repeated.")] = None

    def request_fields(self, model: str) -> dict[str, object]:
        """The fields of a request beside its messages."""
        given = {"max_tokens": self.max_tokens, "temperature": self.temperature, "seed": self.seed}
        return {"model": model} | {name: value for name, value in given.items() if value is not None}


@grouped
def chat(
    context: typer.Context,
    options: ChatOptions,
    model: Annotated[str | None, typer.Argument(help="Model to serve; with --url, its name there.")] = None,
) -> None:
    """Chat with MODEL. A pipe's lines are questions, one a line. Options of `paceline serve` may follow MODEL."""
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with opened(model, options, context.args) as conversation:
        if sys.stdin.isatty():
            talk(conversation, console)
        elif not answer_lines(conversation):
            raise typer.Exit(FAILED_EXIT_CODE)


@contextmanager
def opened(model: str | None, options: ChatOptions, serve_options: Sequence[str]) -> Iterator[Conversation]:
    """An empty conversation with the model, served here unless there is a server."""
    if model is not None and model.startswith("-"):
        raise ConfigError(f"MODEL comes first, options of `paceline serve` after it; got {model!r}")
    if options.url is not None:
        if serve_options:
            raise ConfigError(f"{serve_options[0]} is for a server of our own; leave it out with --url")
        endpoint = Endpoint(parse_url(options.url), options.api_key)
        yield Conversation(endpoint, options.request_fields(model or first_model(endpoint)), options.system)
        return
    model = model or DEFAULT_MODEL
    if sys.stderr.isatty():
        typer.echo(f"loading {model}", err=True)
    with private_server(model, serve_options) as server:
        name = first_model(server.endpoint)
        yield Conversation(server.endpoint, options.request_fields(name), options.system)


def talk(conversation: Conversation, console: Console) -> None:
    """Questions from the keyboard until /exit or the end of input."""
    import readline  # noqa: F401  # importing it gives input() its editing keys

    console.print(f"{conversation.options['model']}: {HELP}", style="dim")
    while (question := read_question()) is not None and question != EXIT:
        if question.startswith("/"):
            console.print(obey(question, conversation), style="dim")
        elif question:
            answer(question, conversation, console)


def read_question() -> str | None:
    """A line without the blanks around it; empty after Ctrl-C, None at the end of input."""
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:
        print()
        return ""


def obey(command: str, conversation: Conversation) -> str:
    """Do what a line with a slash says; what to tell."""
    if command == "/reset":
        conversation.reset()
        return "forgotten"
    return conversation.stats() if command == "/stats" else f"{command} is no command: {HELP}"


def answer(question: str, conversation: Conversation, console: Console) -> None:
    """Show one answer as it comes, then what it took."""

    def show(piece: Piece) -> None:
        text = piece.text.translate(CONTROLS)
        if piece.is_reasoning:
            console.print(text, end="", style="dim")
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    try:
        ending = told(conversation.ask(question, show))
    except KeyboardInterrupt:
        ending = "stopped"
    except PacelineError as error:
        ending = f"error: {error.message}"
    console.print(f"\n{ending}", style="dim")


def answer_lines(conversation: Conversation) -> bool:
    """Answer each line of standard input on standard output, nothing else; whether all went well.

    Lines are turns of one conversation. An error goes to standard error, and the next line is read.
    """

    def show(piece: Piece) -> None:
        if not piece.is_reasoning:
            sys.stdout.write(piece.text)
            sys.stdout.flush()

    all_went_well = True
    for line in sys.stdin.buffer:
        question = line.decode("utf-8", "replace").strip()
        if question == EXIT:
            break
        try:
            if question.startswith("/"):
                typer.echo(obey(question, conversation), err=True)
            elif question:
                conversation.ask(question, show)
                sys.stdout.write("\n")
        except PacelineError as error:
            typer.echo(f"paceline: {error.message}", err=True)
            all_went_well = False
    return all_went_well
