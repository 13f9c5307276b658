"""Serving starts without the libraries that only development or benchmarks need: its start-up depends on it."""

import subprocess
import sys

OTHERS_LIBRARIES = ("torch", "transformers", "gguf", "pytest", "hypothesis", "openai", "aiohttp", "plotly")

IMPORT_THE_SERVER = """
import importlib, pkgutil, sys
from importlib.util import find_spec
import paceline.engine
rooms = [name for name in ("paceline.cli", "paceline.engine", "paceline.server", "paceline.llm") if find_spec(name)]
for name in rooms:
    room = importlib.import_module(name)
    for module in pkgutil.iter_modules(getattr(room, "__path__", []), name + "."):
        importlib.import_module(module.name)
print("imported", *rooms)
print("found", *sorted(set(sys.argv[1:]) & set(sys.modules)))
"""


def modules_found(script: str) -> tuple[list[str], list[str]]:
    command = [sys.executable, "-c", script, *OTHERS_LIBRARIES]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()
    imported, found = (line.split()[1:] for line in lines)
    return imported, found


def test_serving_imports_no_development_library() -> None:
    imported, found = modules_found(IMPORT_THE_SERVER)
    assert "paceline.engine" in imported
    assert found == []


def test_the_check_sees_a_development_library() -> None:
    _, found = modules_found("import pytest\n" + IMPORT_THE_SERVER)
    assert "pytest" in found
