"""Each house rule is shown a snippet that breaks it and one that just keeps it."""

from collections.abc import Callable, Iterator

import habit_rules
import import_rules
import pytest
from house import Source

Rule = Callable[[Source], Iterator[str]]

LONG_FUNCTION = "def long() -> None:\n" + "    print()\n" * 50
CORE, OPS, ENGINE, TEXT, WORKLOAD = (
    f"src/paceline/{room}/x.py" for room in ("core", "ops", "engine", "text", "workload")
)

BAD: tuple[tuple[Rule, str, str], ...] = (
    (import_rules.room_imports, CORE, "from paceline.ops.protocol import Ops"),
    (import_rules.room_imports, CORE, "from paceline import exec"),
    (import_rules.room_imports, CORE, "def f() -> None:\n    import paceline.engine.client"),
    (import_rules.room_imports, CORE, "from ..engine import client"),
    (import_rules.room_imports, CORE, "from .. import engine"),
    (import_rules.room_imports, OPS, "from paceline.models.spec import ModelSpec"),
    (import_rules.room_imports, ENGINE, "import paceline.server"),
    (import_rules.room_imports, ENGINE, "from paceline.text.tokenizer import Tokenizer"),
    (import_rules.room_imports, TEXT, "from paceline.models.transformer import Transformer"),
    (import_rules.room_imports, TEXT, "from paceline.models import transformer"),
    (import_rules.room_imports, "src/paceline/errors.py", "from paceline.core.plan import StepPlan"),
    (import_rules.room_imports, "src/paceline/attic/x.py", "'''A room nobody planned.'''"),
    (import_rules.library_imports, "src/paceline/server/x.py", "import torch"),
    (import_rules.library_imports, ENGINE, "from fastapi import FastAPI"),
    (import_rules.library_imports, "src/paceline/__init__.py", "import numpy"),
    (import_rules.purity, CORE, "import numpy as np"),
    (import_rules.purity, CORE, "from time import monotonic"),
    (import_rules.purity, "src/paceline/costs/x.py", "import random"),
    (import_rules.purity, "src/paceline/costs/x.py", "import numpy as np"),
    (import_rules.library_imports, "src/paceline/costs/x.py", "import numpy as np"),
    (import_rules.purity, WORKLOAD, "import os.path"),
    (import_rules.purity, WORKLOAD, "import random\nx = random.random()"),
    (import_rules.purity, WORKLOAD, "from random import uniform"),
    (import_rules.purity, WORKLOAD, "from random import Random\nR = Random()"),
    (import_rules.purity, WORKLOAD, "from datetime import datetime\ndef f() -> None:\n    datetime.now()"),
    (import_rules.purity, CORE, "from random import Random"),
    (import_rules.purity, CORE, "import logging"),
    (import_rules.purity, CORE, "def f() -> None:\n    import threading"),
    (import_rules.purity, CORE, "def f() -> None:\n    print(1)"),
    (import_rules.native_module_imports, ENGINE, "from paceline.ops import _native"),
    (import_rules.native_module_imports, ENGINE, "import paceline.ops._native"),
    (import_rules.dynamic_imports, CORE, "import importlib\nimportlib.import_module('paceline.server')"),
    (import_rules.nanobind_includes, "native/rows.cpp", "// Rows.\n#include <nanobind/nanobind.h>"),
    (import_rules.nanobind_includes, "native/rows.h", "// Rows.\n# include <Python.h>"),
    (habit_rules.file_size, CORE, "x = 1\n" * 401),
    (habit_rules.function_size, CORE, LONG_FUNCTION),
    (habit_rules.function_size, CORE, "def f(a, b, c, d, e, *, g, h): ..."),
    (habit_rules.module_docstring, CORE, "X = 1"),
    (habit_rules.header_comment, "native/rows.h", "#pragma once"),
    (habit_rules.unfinished, CORE, "# TO" + "DO later"),
    (habit_rules.unfinished, "native/rows.cpp", "// FIX" + "ME"),
    (habit_rules.annotations, CORE, "def f(): ..."),
    (habit_rules.annotations, CORE, "class A:\n    def f(self, x) -> None: ..."),
    (habit_rules.global_statements, CORE, "def f() -> None:\n    global x\n    x = 1"),
    (habit_rules.module_state, CORE, "counter = 0"),
    (habit_rules.module_state, CORE, "CACHE: dict[int, int] = {}"),
    (habit_rules.module_state, CORE, "SEEN = {1}\ndef f() -> None:\n    SEEN.add(2)"),
    (habit_rules.module_state, CORE, "TABLE = {1: 2}\ndef f() -> None:\n    TABLE[3] = 4"),
    (habit_rules.module_state, CORE, "CONFIG = Config()\ndef f() -> None:\n    CONFIG.port += 1"),
)

GOOD: tuple[tuple[Rule, str, str], ...] = (
    (import_rules.room_imports, ENGINE, "from paceline.core.plan import StepPlan\nfrom paceline.engine import client"),
    (import_rules.room_imports, TEXT, "from paceline.models.gguf_metadata import tokenizer_fields"),
    (import_rules.room_imports, CORE, "from paceline.core.kv import engine"),
    (import_rules.library_imports, OPS, "import numpy as np\nimport mmap"),
    (import_rules.library_imports, "src/paceline/costs/fit.py", "import numpy as np"),
    (import_rules.purity, "src/paceline/costs/fit.py", "import numpy as np"),
    (import_rules.purity, CORE, "from collections.abc import Sequence\nfrom array import array\nimport heapq"),
    (
        import_rules.purity,
        WORKLOAD,
        "from random import Random\nimport json\ndef f(seed: int) -> Random:\n    return Random(seed)",
    ),
    (import_rules.purity, ENGINE, "import time\nprint(time.monotonic())"),
    (import_rules.native_module_imports, OPS, "from paceline.ops import _native"),
    (import_rules.nanobind_includes, "native/bindings.cpp", "// Bindings.\n#include <nanobind/nanobind.h>"),
    (habit_rules.file_size, CORE, "x = 1\n" * 400),
    (habit_rules.function_size, CORE, "class A:\n    def f(self, a, b, c, d, e, g): ..."),
    (habit_rules.module_docstring, CORE, '"""Blocks."""'),
    (habit_rules.annotations, CORE, "class A:\n    def f(self, x: int) -> None: ...\n    def _g(self): ..."),
    (habit_rules.module_state, CORE, "SIZE = 16\nTable = dict[int, int]\n__all__ = ['f']"),
    (habit_rules.module_state, CORE, "app = typer.Typer()\ndef f() -> None:\n    seen = set()\n    seen.add(1)"),
)


def name_of(case: tuple[Rule, str, str]) -> str:
    return f"{case[0].__name__}: {case[2].splitlines()[-1].strip()}"


@pytest.mark.parametrize(("rule", "name", "text"), BAD, ids=[name_of(case) for case in BAD])
def test_the_rule_catches(rule: Rule, name: str, text: str) -> None:
    assert list(rule(Source(name, text)))


@pytest.mark.parametrize(("rule", "name", "text"), GOOD, ids=[name_of(case) for case in GOOD])
def test_the_rule_lets_pass(rule: Rule, name: str, text: str) -> None:
    assert list(rule(Source(name, text))) == []
