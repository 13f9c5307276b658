"""Rules on imports, each a function from one source to the sentences that say how it breaks the rule."""

import ast
import re
import sys
from collections.abc import Iterator

from house import PACKAGE, PURE_BARRED_CALLS, PURE_BARRED_METHODS, PURE_FILE_LIBRARIES, PURE_LIBRARY, ROOMS, Source

NATIVE_MODULE = "paceline.ops._native"


def imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    """(line, full module name) of every import, wherever it stands; `from a import b` yields both a and a.b."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = source.name.removeprefix("src/").split("/")[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            yield node.lineno, base
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def room_imports(source: Source) -> Iterator[str]:
    """A room imports itself and the rooms its entry lists."""
    if source.room is None:
        return
    if source.room not in ROOMS:
        yield f"{source.name}: room {source.room!r} has no entry in tests/arch/house.py"
        return
    room = ROOMS[source.room]
    for line, module in imported_modules(source):
        parts = module.split(".")
        if parts[0] != PACKAGE or len(parts) < 2:
            continue
        if parts[1] in ROOMS and parts[1] not in (source.room, *room.rooms):
            yield f"{source.name}:{line}: {source.room} may not import {module}"
        if any(module == barred or module.startswith(f"{barred}.") for barred in room.barred_modules):
            yield f"{source.name}:{line}: {source.room} may not import {module}"


def library_imports(source: Source) -> Iterator[str]:
    """A third-party library is imported only by the rooms that own its use."""
    allowed = ROOMS[source.room].libraries if source.room in ROOMS else ()
    allowed += PURE_FILE_LIBRARIES.get(source.name, ())
    for line, module in imported_modules(source):
        top = module.split(".")[0]
        if top and top != PACKAGE and top not in sys.stdlib_module_names and top not in allowed:
            yield f"{source.name}:{line}: {source.room} may not import {top}"


def purity(source: Source) -> Iterator[str]:
    """A pure room takes values and arithmetic from the standard library, and calls nothing that looks outside."""
    if source.room not in ROOMS or not ROOMS[source.room].is_pure:
        return
    allowed = (PACKAGE, *PURE_LIBRARY, *ROOMS[source.room].pure_extras, *PURE_FILE_LIBRARIES.get(source.name, ()))
    for line, module in imported_modules(source):
        top = module.split(".")[0]
        if top not in allowed:
            yield f"{source.name}:{line}: {source.room} is pure and may not import {module}"
    yield from (
        f"{source.name}:{line}: {source.room} is pure and may not {deed}" for line, deed in impure_deeds(source)
    )


def impure_deeds(source: Source) -> Iterator[tuple[int, str]]:
    """(line, what is done) where a file looks at the world, the clock, or randomness nobody seeded."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in PURE_BARRED_CALLS:
                yield node.lineno, f"call {node.func.id}()"
            if node.func.id == "Random" and not node.args:
                yield node.lineno, "call Random() without a seed"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in PURE_BARRED_METHODS:
                yield node.lineno, f"ask for the time with {node.func.attr}()"
        elif isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
            yield node.lineno, "import random as a whole, only Random from it"
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            yield from ((node.lineno, f"import random.{a.name}") for a in node.names if a.name != "Random")


def native_module_imports(source: Source) -> Iterator[str]:
    """Only `ops` knows the native module."""
    if source.room == "ops":
        return
    for line, module in imported_modules(source):
        if module == NATIVE_MODULE:
            yield f"{source.name}:{line}: only ops may import {NATIVE_MODULE}"


def dynamic_imports(source: Source) -> Iterator[str]:
    """No import that these rules could not see, but for the engine process, which loads the factory it is told."""
    if source.name == "src/paceline/engine/process.py":
        return
    for node in source.nodes:
        called = getattr(node.func, "id", getattr(node.func, "attr", None)) if isinstance(node, ast.Call) else None
        if called in ("__import__", "import_module"):
            yield f"{source.name}:{node.lineno}: imports by name hide from the import rules"


def nanobind_includes(source: Source) -> Iterator[str]:
    """Only the bindings know nanobind and Python."""
    if source.name == "native/bindings.cpp":
        return
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.match(r"\s*#\s*include\s*[<\"](nanobind/|Python\.h)", line):
            yield f"{source.name}:{number}: only native/bindings.cpp may include nanobind"
