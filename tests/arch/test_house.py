"""The code keeps the house rules: who imports whom, how large things are, how modules hold state."""

from collections.abc import Callable, Iterable, Iterator

import habit_rules
import import_rules
import pytest
from house import NATIVE_SOURCES, OTHER_SOURCES, PACKAGE_SOURCES, Source

Rule = Callable[[Source], Iterator[str]]

# (start of the complaint, reason). At most three, and the list may only shrink.
SIZE_EXCEPTIONS: tuple[tuple[str, str], ...] = (
    ("src/paceline/cli.py: serve has ", "typer reads a command line as one parameter a flag"),
)
MAX_SIZE_EXCEPTIONS = 3

ALL_PYTHON = PACKAGE_SOURCES + OTHER_SOURCES
NATIVE_HEADERS = tuple(source for source in NATIVE_SOURCES if source.name.endswith(".h"))
EVERYTHING = ALL_PYTHON + NATIVE_SOURCES
RULES: tuple[tuple[Rule, tuple[Source, ...]], ...] = (
    (import_rules.room_imports, PACKAGE_SOURCES),
    (import_rules.library_imports, PACKAGE_SOURCES),
    (import_rules.purity, PACKAGE_SOURCES),
    (import_rules.native_module_imports, PACKAGE_SOURCES),
    (import_rules.dynamic_imports, PACKAGE_SOURCES),
    (import_rules.nanobind_includes, NATIVE_SOURCES),
    (habit_rules.module_docstring, ALL_PYTHON),
    (habit_rules.header_comment, NATIVE_HEADERS),
    (habit_rules.unfinished, EVERYTHING),
    (habit_rules.annotations, PACKAGE_SOURCES),
    (habit_rules.global_statements, PACKAGE_SOURCES),
    (habit_rules.module_state, PACKAGE_SOURCES),
)


def complaints(rule: Rule, sources: Iterable[Source]) -> list[str]:
    return [complaint for source in sources for complaint in rule(source)]


def size_complaints() -> list[str]:
    return complaints(habit_rules.file_size, EVERYTHING) + complaints(habit_rules.function_size, PACKAGE_SOURCES)


@pytest.mark.parametrize(("rule", "sources"), RULES, ids=[rule.__name__ for rule, _ in RULES])
def test_the_code_keeps_the_rule(rule: Rule, sources: tuple[Source, ...]) -> None:
    assert complaints(rule, sources) == []


def test_files_functions_and_signatures_are_small() -> None:
    excepted = tuple(start for start, _ in SIZE_EXCEPTIONS)
    assert [complaint for complaint in size_complaints() if not complaint.startswith(excepted)] == []


def test_every_size_exception_is_few_reasoned_and_still_needed() -> None:
    assert len(SIZE_EXCEPTIONS) <= MAX_SIZE_EXCEPTIONS
    for start, reason in SIZE_EXCEPTIONS:
        assert len(reason) > 20, f"{start}: give a reason"
        assert any(complaint.startswith(start) for complaint in size_complaints()), f"{start}: remove this exception"


def test_the_rules_see_the_code() -> None:
    assert {source.room for source in PACKAGE_SOURCES} >= {None, "errors", "core", "ops"}
    assert any(source.name.startswith("tests/") for source in OTHER_SOURCES)
