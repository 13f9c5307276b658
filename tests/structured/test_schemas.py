"""A taste of schemas.py, and proof that it notices when something is broken; `make soak` runs all of it."""

import json
import random
from functools import cache

import numpy as np
import pytest
from random_schemas import random_schema
from schemas import Ask, Rig, asks_for, make_rig, run_asks

import paceline.exec.constraint as constraint_module
from paceline.core.request import Grammar, GrammarKind

NUM_SCHEMAS, NUM_SEEDS = 40, 2
PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Grace"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@cache
def rig() -> Rig:
    return make_rig()


def test_every_finished_output_satisfies_its_schema() -> None:
    schemas = [random_schema(random.Random(f"ci/{index}")) for index in range(NUM_SCHEMAS)]
    tally = run_asks(rig(), asks_for(schemas, NUM_SEEDS))
    assert tally.finished > 0.6 * NUM_SCHEMAS * NUM_SEEDS, tally
    assert tally.forced > 0.05 * tally.tokens, tally
    assert tally.preempted > 0, tally


def test_a_sampler_that_ignores_the_mask_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(matcher: object, mask: np.ndarray) -> None:
        mask[:] = 0xFFFF_FFFF

    run_asks(rig(), asks_for([PERSON], 2))
    monkeypatch.setattr(constraint_module, "fill_mask", everything)
    with pytest.raises(AssertionError):
        run_asks(rig(), asks_for([PERSON], 2))


def test_a_grammar_that_is_not_the_schema_is_noticed() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "boolean"}}, "additionalProperties": False}
    other = Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))
    with pytest.raises(AssertionError, match="does not satisfy"):
        run_asks(rig(), [Ask(PERSON, other)])
