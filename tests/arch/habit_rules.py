"""Rules on size and style, each a function from one source to the sentences that say how it breaks the rule."""

import ast
import re
from collections.abc import Iterator

from house import Source

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_PARAMETERS = 6
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")

MUTATING_METHODS = frozenset(
    "add append appendleft clear discard extend insert pop popitem popleft remove reverse setdefault "
    "sort update".split()
)
# Objects a library wants at module level; they are written while the module is imported and only read afterwards.
DECLARATIONS = frozenset(("typer.Typer", "Typer", "APIRouter", "fastapi.APIRouter", "logging.getLogger", "getLogger"))
CONSTANT_NAME = re.compile(r"_?[A-Z][A-Z0-9_]*|_?[A-Z][A-Za-z0-9]*|__\w+__")
BORN_EMPTY = re.compile(r"\[\]|\{\}|(\w+\.)?(set|dict|list|deque|Counter|OrderedDict)\(\)|(\w+\.)?defaultdict\(.*\)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(source: Source) -> Iterator[Function]:
    """Every function and method, nested ones too."""
    return (node for node in source.nodes if isinstance(node, Function))


def parameters(function: Function) -> list[ast.arg]:
    """The parameters a caller gives."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    return [argument for argument in every if argument.arg.lstrip("_") not in ("self", "cls")]


def file_size(source: Source) -> Iterator[str]:
    """A file holds one noun."""
    num_lines = len(source.text.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield f"{source.name}: {num_lines} lines, at most {MAX_FILE_LINES}"


def function_size(source: Source) -> Iterator[str]:
    """A function fits on a screen; more parameters than a hand has fingers is a missing dataclass."""
    for function in functions(source):
        num_lines = (function.end_lineno or function.lineno) - function.lineno + 1
        if num_lines > MAX_FUNCTION_LINES:
            yield f"{source.name}: {function.name} has {num_lines} lines, at most {MAX_FUNCTION_LINES}"
        if len(parameters(function)) > MAX_PARAMETERS:
            yield f"{source.name}: {function.name} has {len(parameters(function))} parameters, at most {MAX_PARAMETERS}"


def module_docstring(source: Source) -> Iterator[str]:
    """A module says what it owns."""
    if not ast.get_docstring(source.tree):
        yield f"{source.name}: no module docstring"


def header_comment(source: Source) -> Iterator[str]:
    """So does a native header."""
    if not source.text.startswith(("//", "/*")):
        yield f"{source.name}: does not open with a comment that says what it owns"


def unfinished(source: Source) -> Iterator[str]:
    """What is not done is an issue, not a remark in the code."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if UNFINISHED.search(line):
            yield f"{source.name}:{number}: unfinished work is marked in the code"


def annotations(source: Source) -> Iterator[str]:
    """Public functions say what they take and give."""
    for function in functions(source):
        if function.name.startswith("_") and not function.name.startswith("__"):
            continue
        if function.returns is None:
            yield f"{source.name}:{function.lineno}: {function.name} does not say what it returns"
        for argument in parameters(function):
            if argument.annotation is None:
                yield f"{source.name}:{function.lineno}: parameter {argument.arg} of {function.name} has no type"


def global_statements(source: Source) -> Iterator[str]:
    """Nobody rebinds a module's variable."""
    for node in source.nodes:
        if isinstance(node, ast.Global):
            yield f"{source.name}:{node.lineno}: global {', '.join(node.names)}"


def module_bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of every assignment at module level."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((target.id, node.value) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def module_state(source: Source) -> Iterator[str]:
    """Modules hold constants: named as such, not born empty to be filled, and not written by any function."""
    names = set()
    for name, value in module_bindings(source.tree):
        names.add(name)
        is_declaration = isinstance(value, ast.Call) and ast.unparse(value.func) in DECLARATIONS
        if not is_declaration and not CONSTANT_NAME.fullmatch(name):
            yield f"{source.name}:{value.lineno}: module variable {name} is not named as a constant"
        if BORN_EMPTY.fullmatch(ast.unparse(value)):
            yield f"{source.name}:{value.lineno}: module variable {name} is born empty, to be filled"
    for function in functions(source):
        yield from (f"{source.name}:{line}: {function.name} writes {name}" for line, name in writes(function, names))


def writes(function: Function, names: set[str]) -> Iterator[tuple[int, str]]:
    """(line, name) where the function changes what one of `names` refers to."""
    for node in ast.walk(function):
        changed: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            changed = [target.value for target in node.targets if isinstance(target, ast.Subscript | ast.Attribute)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and isinstance(node.target, ast.Subscript | ast.Attribute):
            changed = [node.target.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATING_METHODS:
            changed = [node.func.value]
        yield from ((node.lineno, item.id) for item in changed if isinstance(item, ast.Name) and item.id in names)
