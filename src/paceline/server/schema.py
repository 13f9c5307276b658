"""Judges a JSON schema before it is compiled: its size, depth, strings and numeric bounds.

What the keywords mean is the compiler's business. Here stands what keeps one schema from costing everybody: limits,
each named with the place where it is passed. Bounds beyond what the compiler can count to are narrowed where that is
enough (every answer still satisfies the schema) and refused by name where it is not; references are written as the
compiler reads them.
"""

from collections.abc import Iterator
from typing import Any, TypeGuard
from urllib.parse import quote

import msgspec

from paceline.errors import RequestError
from paceline.server.checks import shown
from paceline.server.limits import MAX_FORCED_CHARS, MAX_SCHEMA_DEPTH, MAX_SCHEMA_VALUES

LARGEST_BOUND = 10**18
NUDGE = 1e-9
LOWER_BOUNDS = frozenset({"minimum", "exclusiveMinimum"})
UPPER_BOUNDS = frozenset({"maximum", "exclusiveMaximum"})
# What a URI may hold (RFC 3986), its escapes included; the rest is escaped.
URI_CHARACTERS = "%:/?#[]@!$&'()*+,;=-._~"
DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})


def parse_schema(raw: bytes, param: str) -> str:
    """The text of a schema that may be compiled, from its JSON. Raises RequestError naming the place and the limit."""
    try:
        schema = msgspec.json.decode(raw)
    except RecursionError:
        raise RequestError(f"{param} may be nested at most {MAX_SCHEMA_DEPTH} levels deep", param) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"{param} is not valid JSON: {error}", param) from None
    if not isinstance(schema, dict):
        raise RequestError(f"{param} must be a JSON schema object, got {shown(schema)}", param)
    for num_values, (place, value, is_schema) in enumerate(walk(schema), 1):
        if num_values > MAX_SCHEMA_VALUES:
            raise RequestError(f"{param} may hold at most {MAX_SCHEMA_VALUES} values", param)
        if len(place) > MAX_SCHEMA_DEPTH:
            raise RequestError(f"{param} may be nested at most {MAX_SCHEMA_DEPTH} levels deep", param)
        check_string(value, ".".join((param, *place)), param)
        if is_schema and isinstance(value, dict):
            narrow_bounds(value, ".".join((param, *place)), param)
            nudge_exclusive_bounds(value, ".".join((param, *place)), param)
            encode_reference(value)
    return msgspec.json.encode(schema).decode()


def walk(schema: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    """Every key and value inside with its place, parents first; and whether it may be a schema, rather than data."""
    stack: list[tuple[tuple[str, ...], Any, bool]] = [((), schema, True)]
    while stack:
        place, value, is_schema = stack.pop()
        yield place, value, is_schema
        if isinstance(value, dict):
            for key, inner in value.items():
                yield place, key, False
                stack.append(((*place, key), inner, is_schema and key not in DATA_KEYWORDS))
        elif isinstance(value, list):
            stack += [((*place, str(index)), inner, is_schema) for index, inner in enumerate(value)]


def check_string(value: object, place: str, param: str) -> None:
    """A string, key or value, is no longer than a forced text may be."""
    if isinstance(value, str) and len(value) > MAX_FORCED_CHARS:
        most = f"strings may have at most {MAX_FORCED_CHARS} characters"
        raise RequestError(f"{place[:200]}: {most}, got {len(value)}", param)


def narrow_bounds(schema: dict[str, Any], place: str, param: str) -> None:
    """Bounds of one schema, in place: what lies further out than we can count is moved in."""
    for keyword in (LOWER_BOUNDS | UPPER_BOUNDS) & schema.keys():
        bound = schema[keyword]
        if not is_number(bound):
            continue
        outward = -bound if keyword in LOWER_BOUNDS else bound
        if outward > LARGEST_BOUND:
            schema[keyword] = -LARGEST_BOUND if keyword in LOWER_BOUNDS else LARGEST_BOUND
        elif outward < -LARGEST_BOUND:
            raise RequestError(
                f"{place}.{keyword}: no number beyond {LARGEST_BOUND:.0e} can be generated, got {shown(bound)}", param
            )


def nudge_exclusive_bounds(schema: dict[str, Any], place: str, param: str) -> None:
    """Move whole exclusive bounds a little inward where both bounds lie within one, in place: the compiler (llguidance
    1.9) lets the bound itself in there, as 0 for exclusiveMinimum 0 and maximum 0.5. Refuses an empty range by name.
    """
    lowest = max((bound for keyword in LOWER_BOUNDS if is_number(bound := schema.get(keyword))), default=None)
    highest = min((bound for keyword in UPPER_BOUNDS if is_number(bound := schema.get(keyword))), default=None)
    if lowest is None or highest is None:
        return
    if lowest > highest:
        raise RequestError(f"{place}: no number is at least {shown(lowest)} and at most {shown(highest)}", param)
    if not 10 * NUDGE < highest - lowest <= 1:
        return
    for keyword, inward in (("exclusiveMinimum", NUDGE), ("exclusiveMaximum", -NUDGE)):
        bound = schema.get(keyword)
        if is_number(bound) and bound == int(bound):
            schema[keyword] = bound + inward


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def encode_reference(schema: dict[str, Any]) -> None:
    """Escape the letters of a `$ref` that no URI may hold, in place; people write names into it as they are."""
    reference = schema.get("$ref")
    if isinstance(reference, str):
        schema["$ref"] = quote(reference, safe=URI_CHARACTERS)
