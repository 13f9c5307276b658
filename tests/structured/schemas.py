"""Random schemas, generated for by the real model, checked by jsonschema.

    python tests/structured/schemas.py --schemas 300 --seeds 3

All outputs of a run share one engine, in batches of 16, half of them with logprobs, in a pool small enough to preempt.
Every output that finished must parse and validate; one that was cut by max_tokens must be the beginning of one that
could; none may end in an error or be refused.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

import jsonschema
from random_schemas import Schema, random_schema

from paceline.config import EngineConfig
from paceline.core.policy import Forecast
from paceline.core.request import (
    FinishReason,
    Grammar,
    GrammarKind,
    Request,
    RequestId,
    SamplingParams,
    StopRule,
    token_array,
)
from paceline.core.sequence import Sequence
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from paceline.server.model_text import spellings_of
from paceline.server.schema import parse_schema
from paceline.text.model_text import load_model_text
from paceline.text.tokenizer import Tokenizer

CONFIG = EngineConfig(max_model_len=1024, max_num_seqs=16, kv_memory_bytes=40 * 2**20)
MAX_TOKENS = 240
PROMPT = "Here is a short example in JSON, without comments:\n"


class NoReserve:
    """Leaves no room for growth."""

    def observe(self, num_output: int) -> None:
        """Learns nothing."""

    def forecast(self) -> Forecast:
        return self

    def add(self, sequence: Sequence, num_held: int) -> None:
        """Expects nothing."""

    def peak_blocks(self) -> float:
        return 0.0


@dataclass
class Tally:
    """What came of a run."""

    finished: int = 0
    cut: int = 0
    preempted: int = 0
    tokens: int = 0
    forced: int = 0

    def __str__(self) -> str:
        share = self.forced / max(self.tokens, 1)
        return (
            f"{self.finished} outputs validate, {self.cut} cut by max_tokens, {self.preempted} preemptions, "
            f"{self.tokens} tokens, {share:.0%} of them taken at once"
        )


@dataclass
class Ask:
    """One output asked for, and what came."""

    schema: Schema
    grammar: Grammar
    tokens: list[int] = field(default_factory=list)
    num_forced: int = 0
    reason: FinishReason | None = None


def asks_for(schemas: SequenceOf[Schema], num_seeds: int) -> list[Ask]:
    texts = [parse_schema(json.dumps(schema).encode(), "schema") for schema in schemas]
    return [
        Ask(schema, Grammar(GrammarKind.JSON_SCHEMA, text))
        for schema, text in zip(schemas, texts, strict=True)
        for _ in range(num_seeds)
    ]


@dataclass(frozen=True)
class Rig:
    """The model in an engine that admits whatever fits, so that growth must preempt."""

    engine: Engine
    tokenizer: Tokenizer


def make_rig() -> Rig:
    rig = Rig(load_engine(CONFIG, NoReserve()), load_model_text(CONFIG.model).tokenizer)
    rig.engine.learn_spellings(spellings_of(rig.tokenizer))
    return rig


def run_asks(rig: Rig, asks: SequenceOf[Ask], first_seed: int = 0) -> Tally:
    """Generate all of them; AssertionError for the first that is not as promised."""
    engine, tokenizer, tally = rig.engine, rig.tokenizer, Tally()
    num_preemptions = engine.scheduler.num_preemptions
    prompt = token_array(tokenizer.encode(PROMPT, add_special_tokens=True))
    base = time.monotonic_ns()
    for index, ask in enumerate(asks):
        sampling = SamplingParams(
            temperature=1.0,
            top_p=0.95,
            seed=first_seed + index,
            num_logprobs=None if index % 2 else 0,
            grammar=ask.grammar,
        )
        stop = StopRule(MAX_TOKENS, stop_token_ids=tokenizer.eos_ids)
        engine.submit(Request(RequestId(base + index), prompt, stop, sampling, arrival_s=float(index)))
    while any(ask.reason is None for ask in asks):
        outputs = engine.step()
        refusals = engine.take_refusals()
        assert not refusals, f"{asks[refusals[0][0] - base].schema}: {refusals[0][1]}"
        if not outputs and not engine.has_work():
            time.sleep(0.001)
        for output in outputs:
            ask = asks[output.request_id - base]
            ask.tokens += [token.token_id for token in output.tokens]
            ask.num_forced += sum(token.logprob is None for token in output.tokens)
            ask.reason = output.finish_reason or ask.reason
    for ask in asks:
        check(tokenizer, ask, tally)
    tally.preempted = engine.scheduler.num_preemptions - num_preemptions
    return tally


def check(tokenizer: Tokenizer, ask: Ask, tally: Tally) -> None:
    text = tokenizer.decode(ask.tokens)
    tally.tokens += len(ask.tokens)
    tally.forced += ask.num_forced
    if ask.reason is FinishReason.LENGTH:
        tally.cut += 1
        return
    assert ask.reason is FinishReason.STOP, f"{ask.reason}: {text!r} for {ask.schema}"
    try:
        jsonschema.validate(json.loads(text), ask.schema, cls=jsonschema.Draft202012Validator)
    except (ValueError, jsonschema.ValidationError) as error:
        raise AssertionError(f"{text!r} does not satisfy {ask.schema}: {error}") from error
    tally.finished += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    schemas = [random_schema(random.Random(f"{options.seed}/{index}")) for index in range(options.schemas)]
    start_s = time.perf_counter()
    tally = run_asks(make_rig(), asks_for(schemas, options.seeds))
    print(f"{options.schemas} schemas x {options.seeds} seeds: {tally}, {time.perf_counter() - start_s:.0f} s")
    assert tally.finished > 0.6 * options.schemas * options.seeds, "too few outputs came to their end"


if __name__ == "__main__":
    main()
