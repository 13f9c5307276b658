"""The options that every experiment has, once, and what they stand for."""

import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from paceline.bench.endpoint import BenchError, Endpoint, parse_url
from paceline.bench.experiment import Settings
from paceline.bench.result import Targets
from paceline.workload.arrivals import Arrivals, Poisson
from paceline.workload.specs import parse_length_pair
from paceline.workload.workload import Workload

UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True)
class Common:
    """Options of every command; the annotations are what the command line shows."""

    model: Annotated[str | None, typer.Option(help="Model to ask. Default: the first the server names.")] = None
    api_key: Annotated[str | None, typer.Option(envvar="OPENAI_API_KEY", help="Key to send.")] = None
    chat: Annotated[bool, typer.Option("--chat", help="Ask /v1/chat/completions.")] = False
    workload: Annotated[
        str | None,
        typer.Option(help="INPUT/OUTPUT lengths such as 256/64 or lognormal:median=200,sigma=1/64, or a name."),
    ] = None
    seconds: Annotated[str, typer.Option(help="How long each load is held.")] = "30s"
    warmup: Annotated[str, typer.Option(help="Not counted at the start of each load.")] = "5s"
    ttft: Annotated[str | None, typer.Option(help="Target of the time to first token, such as 300ms.")] = None
    itl: Annotated[str | None, typer.Option(help="Target of a request's mean gap between tokens, such as 40ms.")] = None
    e2e: Annotated[str | None, typer.Option(help="Target of a request's whole time.")] = None
    timeout: Annotated[str, typer.Option(help="After which a request is given up.")] = "600s"
    seed: Annotated[int, typer.Option(help="Seed of lengths, arrivals and prompts.")] = 0
    out: Annotated[Path | None, typer.Option(help="Result file; the report lies beside it.")] = None

    def endpoint(self, url: str) -> Endpoint:
        """One of the servers."""
        return Endpoint(parse_url(url), self.model, self.api_key, self.chat)

    def settings(self, lengths: str, arrivals: Arrivals | None = None) -> Settings:
        """What all loads have in common; `lengths`: the command's own default."""
        chosen = self.workload or lengths
        duration_s, warmup_s = parse_seconds("--seconds", self.seconds), parse_seconds("--warmup", self.warmup, least=0)
        if warmup_s >= duration_s:
            raise BenchError(f"--warmup {self.warmup} leaves nothing of --seconds {self.seconds} to measure")
        return Settings(
            workload=Workload(parse_length_pair(chosen, "--workload"), arrivals or Poisson(1.0), seed=self.seed),
            targets=Targets(
                ttft_s=None if self.ttft is None else parse_seconds("--ttft", self.ttft),
                itl_s=None if self.itl is None else parse_seconds("--itl", self.itl),
                e2e_s=None if self.e2e is None else parse_seconds("--e2e", self.e2e),
            ),
            duration_s=duration_s,
            warmup_s=warmup_s,
            timeout_s=parse_seconds("--timeout", self.timeout),
            command=command_line(),
            about={"lengths": chosen},
        )


def parse_seconds(option: str, text: str, least: float = 1e-6) -> float:
    """`300ms`, `2s`, `5m`, or seconds without a unit."""
    unit = next((unit for unit in UNITS_S if text.endswith(unit)), "")
    try:
        value = float(text.removesuffix(unit)) * UNITS_S.get(unit, 1.0)
    except ValueError:
        value = math.nan
    if not least <= value < math.inf:
        raise BenchError(f"{option} {text!r}: expected a time such as 300ms, 2s or 5m")
    return value


def check_out(path: Path) -> None:
    """That a file can be put there, asked before minutes of work. Raises BenchError."""
    if not path.absolute().parent.is_dir():
        raise BenchError(f"--out {path}: there is no folder {path.parent}; create it first")
    if path.is_dir():
        raise BenchError(f"--out {path}: is a folder; name a file in it")


def command_line() -> str:
    """As it was typed, but for the key."""
    shown = []
    is_secret = False
    for argument in sys.argv[1:]:
        name, has_value, _ = argument.partition("=")
        shown.append("…" if is_secret else f"{name}=…" if has_value and name == "--api-key" else argument)
        is_secret = argument == "--api-key"
    return " ".join(["paceline", *shown])


def with_common(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of every experiment."""
    return with_fields(Common)(command)


def with_fields(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let typer see the fields of a dataclass in place of a command's first parameter, which is one."""
    hints = get_type_hints(kind, include_extras=True)
    names = [field.name for field in fields(kind)]
    shared = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in fields(kind)
    ]

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def called(**given: Any) -> None:
            options = kind(**{name: given.pop(name) for name in names})
            command(options, **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        called.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, *shared)}
        return called

    return wrap
