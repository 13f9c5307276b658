"""The rooms of the house: who may import whom, and which libraries enter where. These tables are the rule."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "paceline"


@dataclass(frozen=True)
class Room:
    """A package (or single module) right under `paceline`. `rooms`: what it may import; `libraries`: third parties;
    `pure_extras`: what a pure room may take from the standard library beyond PURE_LIBRARY.
    """

    rooms: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    is_pure: bool = False
    pure_extras: tuple[str, ...] = ()
    barred_modules: tuple[str, ...] = ()


# Lower rooms first. A room that isn't here may not exist; the order makes an upward import impossible to write down.
ROOMS = {
    "errors": Room(),
    "core": Room(("errors",), is_pure=True),
    "costs": Room(("errors", "core"), is_pure=True),
    # Seeded randomness is what a workload is; the others parse lines that a caller read.
    "workload": Room(("errors", "core"), is_pure=True, pure_extras=("random", "statistics", "json", "datetime")),
    "ops": Room(("errors",), ("numpy",)),
    "models": Room(("errors", "ops"), ("numpy", "huggingface_hub")),
    "exec": Room(("errors", "core", "ops", "models"), ("numpy", "llguidance")),
    "config": Room(("errors",)),
    # text reads a checkpoint's tokenizer and template; the network and its weights are not its business.
    "text": Room(("errors", "models"), ("tokenizers", "jinja2"), barred_modules=("paceline.models.transformer",)),
    "engine": Room(
        ("errors", "core", "costs", "ops", "models", "exec", "config"),
        ("numpy", "msgspec", "zmq"),
    ),
    "observe": Room(("errors", "core", "engine"), ("prometheus_client",)),
    "server": Room(
        ("errors", "core", "costs", "models", "config", "text", "engine", "observe"),
        ("msgspec", "fastapi", "starlette", "uvicorn"),
    ),
    "llm": Room(("errors", "core", "models", "exec", "config", "text", "engine", "server"), ("numpy",)),
    "vllm_flags": Room(("errors",)),
    # bench measures any server from outside: it knows nothing of the engine, only how work is described.
    "bench": Room(("errors", "workload"), ("aiohttp", "msgspec", "numpy", "plotly", "rich", "typer")),
    # The engine's scheduler on a virtual clock; what it measures is defined by bench, what it replays by the engine.
    "sim": Room(
        ("errors", "core", "costs", "workload", "models", "config", "engine", "bench"), ("msgspec", "rich", "typer")
    ),
    # Work without a server of ours: batch files, a chat in the terminal, models at hand, comparing formats.
    "offline": Room(
        ("errors", "core", "ops", "models", "config", "text", "engine", "llm"),
        ("aiohttp", "msgspec", "numpy", "rich", "typer"),
    ),
    # The planner's terminal and page: it reads what a model's files say of its sizes, and draws as bench's reports do.
    "planning": Room(
        ("errors", "costs", "workload", "models", "config", "engine", "bench", "sim"),
        ("numpy", "rich", "typer"),
    ),
    "cli": Room(("errors", "config", "server", "vllm_flags", "bench", "sim", "offline", "planning"), ("typer", "rich")),
    # `python -m paceline`.
    "__main__": Room(("cli",)),
}

# What a pure room may take from the standard library: values and arithmetic, nothing that looks outside.
PURE_LIBRARY = frozenset(
    "__future__ abc array bisect collections copy dataclasses enum fractions functools heapq hashlib itertools math "
    "operator struct types typing".split()
)
# The fit is linear algebra on measured steps; the law it finds is pure again.
PURE_FILE_LIBRARIES = {"src/paceline/costs/fit.py": ("numpy",)}
PURE_BARRED_CALLS = frozenset("open print input exec eval compile __import__ breakpoint globals id hash".split())
PURE_BARRED_METHODS = frozenset("now utcnow today".split())


@dataclass(frozen=True)
class Source:
    """One Python file: `name` is its path from the repository's root."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree; walked once for all rules."""
        return tuple(ast.walk(self.tree))

    @property
    def room(self) -> str | None:
        """The room of a file of the package; None for the package's own `__init__` and for files outside it."""
        parts = Path(self.name).with_suffix("").parts
        if parts[:2] != ("src", PACKAGE) or parts[2] == "__init__":
            return None
        return parts[2]


def read(pattern: str) -> Iterator[Source]:
    """The Python files that match, read once each."""
    for path in sorted(ROOT.glob(pattern)):
        yield Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))


PACKAGE_SOURCES = tuple(read(f"src/{PACKAGE}/**/*.py"))
OTHER_SOURCES = tuple(source for folder in ("tests", "scripts", "benchmarks") for source in read(f"{folder}/**/*.py"))
NATIVE_SOURCES = tuple(source for suffix in ("h", "cpp") for source in read(f"native/**/*.{suffix}"))
