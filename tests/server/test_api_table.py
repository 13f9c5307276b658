"""docs/api.md says what the code does: its tables are held against the fields, routes and limits of the server.

A new route, field or limit fails here until it has its line.
"""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from starlette.routing import Route

from paceline.config import EngineConfig, ServeConfig
from paceline.errors import PacelineError
from paceline.server import limits
from paceline.server.context import ServingContext
from paceline.server.fields import CHAT, COMPLETION, DETOKENIZE, EMBEDDING, METADATA, NEUTRAL, TOKENIZE
from paceline.server.openapi import OPERATIONS
from paceline.server.routes import create_app

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
CELL = re.compile(r"(?<!\\)\|")


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(title: str) -> list[list[str]]:
    """The cells of a section's table, head and rule left out."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in CELL.split(line)[1:-1]] for line in lines[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fields(title: str, column: int) -> set[str]:
    return {code(row[0])[0] for row in rows(title) if row[column] == "yes"}


def test_the_supported_fields_are_those_of_the_server() -> None:
    assert fields("Generation: supported fields", 1) == CHAT
    assert fields("Generation: supported fields", 2) == COMPLETION
    assert fields("Embeddings: supported fields", 1) == EMBEDDING
    assert fields("Tokenizer routes: supported fields", 1) == TOKENIZE
    assert fields("Tokenizer routes: supported fields", 2) == DETOKENIZE


def test_the_refused_fields_have_their_neutral_values() -> None:
    told = {
        code(row[0])[0]: [json.loads(value) for value in code(row[1])]
        for row in rows("Refused, but for neutral values")
    }
    assert told == {name: list(values) for name, values in NEUTRAL.items()}


def test_the_ignored_fields_are_the_metadata() -> None:
    assert set(code(section("Accepted and ignored"))) == METADATA


def test_the_limits_are_those_of_the_server() -> None:
    told = {code(row[0])[0]: json.loads(row[1].replace(",", "")) for row in rows("Limits of one request")}
    assert told == {name: getattr(limits, name) for name in vars(limits) if re.match("M(AX|IN)_", name)}


def test_the_errors_are_those_of_the_tree() -> None:
    def leaves(kind: type[PacelineError]) -> set[type[PacelineError]]:
        return {kind}.union(*(leaves(child) for child in kind.__subclasses__()))

    told = {(row[0], code(row[1])[0]) for row in rows("Errors")}
    at_start = {"bad_checkpoint", "bad_config"}
    assert told == {(str(kind.status), kind.code) for kind in leaves(PacelineError) if kind.code not in at_start}


def test_every_route_is_told_and_described() -> None:
    told = {(method, path): row[2] == "yes" for row in rows("Routes") for method, path in [code(row[0])[0].split(" ")]}
    described = {(item.method.upper(), item.path): 401 in item.errors for item in OPERATIONS}
    assert told == described
    assert described.keys() == served_routes()


def served_routes() -> set[tuple[str, str]]:
    """(method, path) of every route of the application."""
    context = SimpleNamespace(config=ServeConfig(EngineConfig()))  # all that registering routes may read
    routes = create_app(cast(ServingContext, context)).routes
    routes = [route for route in routes if isinstance(route, Route) and not is_page(route.path)]
    return {(method, route.path.replace(":path", "")) for route in routes for method in route.methods or ()}


def is_page(path: str) -> bool:
    """Whether a path serves the page, which is no part of the API."""
    return path == "/" or path.startswith("/page/")
