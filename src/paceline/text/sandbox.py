"""A Jinja environment for templates that nobody vouched for: bounded in steps, sizes and time.

A chat template is a program inside a model file. Jinja's sandbox keeps it from Python's objects; this one also keeps
it from time and memory. Every loop step, call, filter, operator and piece of output is charged to the rendering's own
`Budget`, and the size of a result *before* it is made where an operation can amplify. Only what chat templates use is
open: lists of filters, string and mapping methods. `Rewriter` closes what Jinja has no hook for. Nothing is evaluated
while compiling, so no work escapes the budget.
"""

import operator
import re
from collections.abc import Callable, Iterator
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any

from jinja2 import Environment, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from paceline.text.budget import CONTAINERS, MAX_INTEGER_BITS, SLOT_WORK, Budget, BudgetExceededError
from paceline.text.rewriter import Rewriter

MAX_INDENT = 64
# A small string made by splitting a long one, in characters' worth of work.
STRING_WORK = 16
# What sorting or joining costs for each part.
PART_WORK = 64


def _words(names: str) -> frozenset[str]:
    return frozenset(names.split())


FILTERS = _words(
    "abs capitalize count d default dictsort first float indent int items join last length list lower map max min "
    "reject rejectattr replace reverse safe select selectattr sort string title tojson trim unique upper"
)
# These look at a value, or at each of its parts, but not into the parts.
CONSTANT_FILTERS = _words("count d default first last length")
SHALLOW_FILTERS = _words("items list map reject rejectattr reverse select selectattr")
# These work on each part in Python.
COSTLY_FILTERS = _words("dictsort join max min sort title unique")
STRING_METHODS = _words(
    "capitalize casefold count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric isspace "
    "istitle isupper join lower lstrip partition removeprefix removesuffix replace rfind rindex rpartition rsplit "
    "rstrip split splitlines startswith strip swapcase title upper"
)
MAPPING_METHODS = _words("copy get items keys values")
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": lambda left, right: left in right,
    "notin": lambda left, right: left not in right,
}
# What may be called beside the listed methods: our own functions, what Jinja makes, and these types.
CALLABLE_KINDS = (FunctionType, MethodType, Macro, Undefined)
CALLABLE_TYPES = (dict, Namespace)
WIDE_FORMAT = re.compile(r"%[^%a-zA-Z]*(\*|\d{4})|%\(")


class MeteredContext(Context):
    """One rendering's variables and its budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.budget = Budget()

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        """A nested context works on the same budget."""
        context = super().derived(locals)
        assert isinstance(context, MeteredContext)
        context.budget = self.budget
        return context


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks text for training; for serving it is transparent."""

    tags = {"generation"}  # noqa: RUF012  # declared so by the base class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse_attribute(environment: Environment, obj: Any, attribute: str) -> Undefined:
    """A template reached for an attribute that leads into Python: refused here, not when the value is used."""
    raise SecurityError(f"access to attribute {attribute!r} of {type(obj).__name__!r} object is unsafe")


class ClosedEnvironment(ImmutableSandboxedEnvironment):
    """Where Jinja's own filters run."""

    unsafe_undefined = _refuse_attribute


class MeteredEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox of chat templates. Holds no state of a rendering, so one serves all threads."""

    unsafe_undefined = _refuse_attribute
    context_class = MeteredContext
    intercepted_binops = _words("+ - * / // % **")

    def __init__(self, filters: dict[str, Callable[..., Any]]) -> None:
        """`filters` replace or join Jinja's own among the open ones; they are charged like them."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_output,
            extensions=["jinja2.ext.loopcontrols", GenerationTag],
        )
        plain = ClosedEnvironment()
        plain.filters.update(filters)
        self.filters = {name: _metered_filter(plain, name) for name in plain.filters if name in FILTERS}
        self.filters |= HELPERS
        self.tests = {name: _metered_test(plain, name) for name in plain.tests}
        self.globals = {name: self.globals[name] for name in ("dict", "namespace", "range")}

    def rewritten(self, source: str) -> nodes.Template:
        """Parse a template and route what Jinja leaves unmetered through the helpers."""
        tree = Rewriter().visit(self.parse(source))
        assert isinstance(tree, nodes.Template)
        return tree

    def getitem(self, obj: Any, argument: Any) -> Any:
        """`obj[argument]`; not by tuples, whose hash may take long."""
        if isinstance(argument, tuple):
            raise SecurityError("subscripts that are tuples are not available in chat templates")
        return super().getitem(obj, argument)

    def wrap_str_format(self, value: Any) -> None:
        """`str.format` stays an ordinary method, which `call` refuses: its widths amplify."""
        return

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call, charged; methods of strings and mappings by the lists, of other built-in types not at all."""
        budget = _budget(__context)
        budget.charge(1)
        if isinstance(__obj, BuiltinMethodType):
            args = tuple(map(_readable, args))
            _admit_method(budget, __obj, args)
        elif isinstance(__obj, (FunctionType, MethodType)) or __obj is dict:
            budget.charge_deep((args, kwargs))
        elif not isinstance(__obj, CALLABLE_KINDS) and __obj not in CALLABLE_TYPES:
            raise SecurityError(f"{type(__obj).__name__!r} objects can't be called in chat templates")
        result = super().call(__context, __obj, *args, **kwargs)
        budget.charge_result(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operator, charged by its result before that is made."""
        budget = _budget(context)
        budget.charge(1)
        if operator == "*":
            _admit_repetition(budget, left, right)
        elif operator == "**":
            _admit_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _admit_format(budget, left, right)
        elif operator == "-" and isinstance(left, CONTAINERS):
            budget.charge_deep((left, right))
        elif operator == "+" and isinstance(left, (str, list)) and isinstance(right, (str, list)):
            budget.charge(SLOT_WORK * (len(left) + len(right)) if isinstance(left, list) else len(left) + len(right))
        result = super().call_binop(context, operator, left, right)
        budget.charge_result(result if isinstance(result, int) else None)
        return result


def _budget(context: Context) -> Budget:
    assert isinstance(context, MeteredContext)
    return context.budget


def _admit_method(budget: Budget, method: BuiltinMethodType, args: tuple[Any, ...]) -> None:
    """Check a built-in method against the lists; charge those whose result may be longer than what they read."""
    owner, name = method.__self__, method.__name__
    allowed = STRING_METHODS if isinstance(owner, str) else MAPPING_METHODS if isinstance(owner, dict) else frozenset()
    if name not in allowed:
        raise SecurityError(f"{type(owner).__name__}.{name} is not available in chat templates")
    size = budget.charge_deep(args).size
    if not isinstance(owner, str):
        return
    if name == "replace":
        _admit_replace(budget, owner, args)
    elif name == "join":
        budget.charge((STRING_WORK + len(owner)) * size)
    elif name in ("split", "rsplit", "splitlines"):
        separator = args[0] if args and isinstance(args[0], str) and args[0] else None
        budget.charge(STRING_WORK * (owner.count(separator) if separator else len(owner) // 2))


def _admit_replace(budget: Budget, text: str, args: tuple[Any, ...]) -> None:
    if len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        budget.charge(len(text) + text.count(args[0]) * len(args[1]))


def _admit_repetition(budget: Budget, left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, (str, list, tuple)) and isinstance(times, int):
            budget.charge(max(0, times) * len(value) * (1 if isinstance(value, str) else SLOT_WORK))


def _admit_power(left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MAX_INTEGER_BITS:
        raise BudgetExceededError(f"an integer of more than {MAX_INTEGER_BITS} bits")


def _admit_format(budget: Budget, form: str, values: Any) -> None:
    if WIDE_FORMAT.search(form):
        raise SecurityError("formats by key, or wider than 999, are not available in chat templates")
    budget.charge(len(form) + form.count("%") * (1000 + budget.charge_deep(values).size))


def _admit_operand(budget: Budget, left: Any, right: Any) -> Any:
    """Charge comparing: two containers are read to the end, anything else costs a step. Returns `right`, readable."""
    budget.charge(1)
    if not isinstance(left, CONTAINERS):
        return right
    right = _readable(right)
    budget.charge_deep((left, right))
    return right


def _readable(value: Any) -> Any:
    """What has no length yet becomes a list, so that it can be charged before it is used."""
    return list(value) if isinstance(value, (Iterator, range)) else value


def _metered_filter(plain: ClosedEnvironment, name: str) -> Callable[..., Any]:
    @pass_context
    def run(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget(context)
        if name not in SHALLOW_FILTERS | CONSTANT_FILTERS:
            value = _readable(value)
        _admit_filter(budget, name, value, args, kwargs)
        result = plain.call_filter(name, value, args, kwargs, context=context)
        budget.charge_result(result)
        return result

    return run


def _admit_filter(budget: Budget, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Charge a filter's work ahead: that of reading its value, and of what it makes where that may be longer."""
    budget.charge_deep((args, kwargs))
    if name in CONSTANT_FILTERS:
        return
    if name in SHALLOW_FILTERS:
        work = STRING_WORK if isinstance(value, str) else SLOT_WORK
        budget.charge(work * len(value) if isinstance(value, (str, range, *CONTAINERS)) else 1)
        return
    extent = budget.charge_deep(value)
    options = (*args, *kwargs.values())
    longest = max((len(option) for option in options if isinstance(option, str)), default=0)
    if name in COSTLY_FILTERS and isinstance(value, (str, *CONTAINERS)):
        budget.charge(PART_WORK * len(value))
    if name == "replace":
        text = str(value)
        budget.charge(sum(text.count(option) for option in options if isinstance(option, str)) * longest)
    elif name == "join":
        budget.charge(extent.size * longest)
    elif name in ("indent", "tojson"):
        width = max((option for option in options if isinstance(option, int)), default=4)
        if max(width, longest) > MAX_INDENT:
            raise SecurityError(f"{name} by more than {MAX_INDENT} is not available in chat templates")
        lines = value.count("\n") * STRING_WORK if isinstance(value, str) else extent.depths
        budget.charge(lines * max(width, longest))


def _metered_test(plain: ClosedEnvironment, name: str) -> Callable[..., Any]:
    @pass_context
    def run(context: Context, value: Any, *args: Any) -> Any:
        operands = [_admit_operand(_budget(context), value, operand) for operand in args]
        return plain.call_test(name, value, operands, context=context)

    return run


@pass_context
def _output(context: Context, value: Any) -> str:
    """What `{{ }}` and literal text add; called for every piece of output."""
    if isinstance(value, str):
        _budget(context).charge(1 + len(value))
        return value
    _budget(context).charge_deep(value)
    return str(value)


@pass_context
def _text(context: Context, value: str) -> str:
    return value


@pass_context
def _counted(context: Context, values: Any) -> Iterator[Any]:
    budget = _budget(context)
    for value in values:
        budget.charge(1)
        yield value


@pass_context
def _concatenated(context: Context, parts: list[Any]) -> str:
    _budget(context).charge_deep(parts)
    return "".join(map(str, parts))


@pass_context
def _compared(context: Context, left: Any, name: str, right: Any) -> Any:
    return COMPARISONS[name](left, _admit_operand(_budget(context), left, right))


@pass_context
def _key(context: Context, value: Any) -> Any:
    _budget(context).charge_deep(value)
    return value


@pass_context
def _sized(context: Context, value: Any) -> Any:
    _budget(context).charge_result(value)
    return value


HELPERS: dict[str, Callable[..., Any]] = {
    "compared helper": _compared,
    "concatenated helper": _concatenated,
    "counted helper": _counted,
    "key helper": _key,
    "sized helper": _sized,
    "text helper": _text,
}
