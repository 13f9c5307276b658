"""Numbers against their bounds, by arithmetic: what the compiled schema accepts, digit by digit, lies within them."""

import json
from decimal import Decimal
from random import Random
from typing import Any

from paceline.core.request import Grammar, GrammarKind
from paceline.core.spellings import Spellings
from paceline.errors import RequestError
from paceline.exec.constraint import Constraint
from paceline.exec.grammar import GrammarCompiler
from paceline.server.schema import parse_schema

SPELLINGS = Spellings((b"<end>", *(bytes([byte]) for byte in range(1, 128))), (0,), (0,))
POINTS = [-10, -3, -1.5, -1, -0.5, -0.1, -0.01, 0, 0.0, 0.001, 0.25, 0.5, 1, 1.5, 2, 3, 9.99, 10, 123.456, 1e6, 1e30]
NUM_SCHEMAS, NUM_TEXTS = 250, 40


def random_bounds(random: Random) -> dict[str, Any]:
    low, high = sorted(random.sample(POINTS, 2))
    schema: dict[str, Any] = {"type": random.choice(["number", "number", "integer"])}
    if random.random() < 0.8:
        schema[random.choice(["minimum", "exclusiveMinimum"])] = low
    if random.random() < 0.8:
        schema[random.choice(["maximum", "exclusiveMaximum"])] = high
    if random.random() < 0.15:
        schema["multipleOf"] = random.choice([5, 0.5, 0.1])
    return schema


def random_text(random: Random, points: list[float]) -> str:
    value = random.choice(points) + random.choice([0, 0, 0, 1, -1, 0.1, -0.1, 0.01, -0.01])
    return random.choice(["-0", "0", "-0.0", str(int(value)), *(f"{value:.{digits}f}" for digits in (1, 2, 3, 6))])


def accepts(compiler: GrammarCompiler, grammar: Grammar, text: str) -> bool:
    matcher = compiler.matcher(grammar)
    tokens = list(text.encode())
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


def is_valid(number: Decimal, schema: dict[str, Any]) -> bool:
    exact = {keyword: Decimal(str(value)) for keyword, value in schema.items() if keyword != "type"}
    return (
        exact.get("minimum", number) <= number <= exact.get("maximum", number)
        and exact.get("exclusiveMinimum", number - 1) < number < exact.get("exclusiveMaximum", number + 1)
        and number % exact.get("multipleOf", Decimal("1e-9")) == 0
        and (schema["type"] == "number" or number == int(number))
    )


def test_b045_no_number_outside_its_bounds_is_accepted() -> None:
    random, compiler, num_accepted = Random(45), GrammarCompiler(128), 0
    compiler.learn_spellings(SPELLINGS)
    for _ in range(NUM_SCHEMAS):
        schema = random_bounds(random)
        points = [value for keyword, value in schema.items() if keyword != "type" and abs(value) < 1e9]
        try:
            grammar = Grammar(GrammarKind.JSON_SCHEMA, parse_schema(json.dumps(schema).encode(), "schema"))
            compiler.matcher(grammar)
        except RequestError:
            continue
        for text in (random_text(random, points + POINTS[:-1]) for _ in range(NUM_TEXTS)):
            if accepts(compiler, grammar, text):
                num_accepted += 1
                assert is_valid(Decimal(text), schema), f"{text} for {schema}"
    assert num_accepted > NUM_SCHEMAS


def test_a_constraint_of_a_bounded_number_ends_with_it() -> None:
    compiler = GrammarCompiler(128)
    compiler.learn_spellings(SPELLINGS)
    schema = parse_schema(b'{"type":"integer","minimum":10,"maximum":19}', "schema")
    constraint = Constraint(compiler, Grammar(GrammarKind.JSON_SCHEMA, schema), [])
    assert constraint.take_forced(9) == (ord("1"),)
    constraint.take(ord("7"))
    assert constraint.take_forced(9) == (0,)
