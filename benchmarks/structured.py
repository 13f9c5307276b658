"""What structured output costs those who share a step with it.

    python benchmarks/structured.py --rounds 5

Pace: 16 greedy streams against 15 of them and one JSON request; tokens/s of the 15, paired by round.
Stall: 15 streams run while requests join them, each with a schema never seen before (compiled beside the steps), or
plain ones with the same prompts; the largest gap of the 15 between two tokens, against their median gap.
One JSON line a round; medians and ratios at the end. Greedy, ignoring EOS, random prompts, in process.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from itertools import count, pairwise

from paceline.config import EngineConfig
from paceline.core.request import Grammar, GrammarKind, Request, RequestId, SamplingParams, StopRule, token_array
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from paceline.server.model_text import spellings_of
from paceline.text.model_text import load_model_text
from streams import random_prompt

NUM_STREAMS, OUTPUT, PROMPT = 16, 200, 64
NUM_JOINS, JOIN_EVERY = 8, 20
NUMBERS = count(1)
# More of them than anybody will read, so that the JSON request runs as long as the others.
RECORDS = json.dumps(
    {
        "type": "array",
        "minItems": 500,
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "member": {"type": "boolean"}},
            "required": ["name", "age", "member"],
            "additionalProperties": False,
        },
    }
)


def schema(name: str, num_properties: int) -> Grammar:
    """Strings, patterns, bounds and enums; every name makes another grammar."""
    properties: dict[str, object] = {}
    for index in range(num_properties):
        properties[f"{name}_{index}"] = [
            {"type": "string", "pattern": f"^[a-z]{{3,{20 + index}}}(red|green|blue)?$"},
            {"type": "integer", "minimum": index, "maximum": 10**9 + index},
            {"enum": [f"{name} {index} {choice}" for choice in range(12)]},
            {"type": "array", "items": {"type": "number", "minimum": 0, "maximum": 1}, "maxItems": 5},
        ][index % 4]
    body = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(body))


def submit(engine: Engine, rng: random.Random, max_tokens: int, grammar: Grammar | None = None) -> RequestId:
    number = next(NUMBERS)
    sampling = SamplingParams(temperature=0.0, grammar=grammar)
    stop = StopRule(max_tokens, stop_token_ids=frozenset({0, 2}) if grammar else frozenset())
    prompt = token_array(random_prompt(rng, engine, PROMPT))
    engine.submit(Request(RequestId(number), prompt, stop, sampling, arrival_s=float(number)))
    return RequestId(number)


def steps(engine: Engine, watched: set[RequestId], times: dict[RequestId, list[float]]) -> Iterator[int]:
    """Step until the watched have ended, noting when their tokens came; the number of steps so far."""
    for number in count(1):
        outputs = engine.step()
        now_s = time.perf_counter()
        for output in outputs:
            if output.request_id in watched:
                times[output.request_id] += [now_s] * len(output.tokens)
        assert not engine.take_refusals(), "a schema of this benchmark was refused"
        if all(len(times[request_id]) >= OUTPUT for request_id in watched):
            break
        yield number
    while engine.has_work() or engine.idle_timeout_ms() is not None:
        engine.step()


def pace(engine: Engine, rng: random.Random, with_json: bool) -> float:
    """Tokens/s of each of the 15 streams while all 16 run."""
    others = {submit(engine, rng, OUTPUT) for _ in range(NUM_STREAMS - 1)}
    grammar = Grammar(GrammarKind.JSON_SCHEMA, RECORDS)
    if with_json:
        engine.compile_grammar(grammar)
    submit(engine, rng, 2 * OUTPUT, grammar if with_json else None)
    times: dict[RequestId, list[float]] = {request_id: [] for request_id in others}
    for _ in steps(engine, others, times):
        pass
    begin_s, end_s = max(at[0] for at in times.values()), min(at[-1] for at in times.values())
    return sum(begin_s < at_s <= end_s for at in times.values() for at_s in at) / (end_s - begin_s) / len(others)


def gaps(engine: Engine, rng: random.Random, kind: str, num_properties: int) -> tuple[float, float]:
    """(median, largest) gap of the 15 streams, in ms, while others join: with new schemas, plain ones, or nobody."""
    watched = {submit(engine, rng, OUTPUT) for _ in range(NUM_STREAMS - 1)}
    times: dict[RequestId, list[float]] = {request_id: [] for request_id in watched}
    for number in steps(engine, watched, times):
        if kind != "nobody" and number % JOIN_EVERY == 0 and number // JOIN_EVERY <= NUM_JOINS:
            grammar = schema(f"k{rng.randrange(10**9)}", num_properties) if kind == "new schemas" else None
            submit(engine, rng, 4, grammar)
    # The first tokens are left out: the prompts are computed then.
    found = [1000 * (b - a) for at in times.values() for a, b in pairwise(at[4:])]
    return statistics.median(found), max(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--properties", type=int, nargs="+", default=[8, 60], help="sizes of the schemas that join")
    options = parser.parse_args()
    config = EngineConfig(model=options.model, num_threads=options.threads, max_num_seqs=32, kv_memory_bytes=1 << 29)
    engine, rng = load_engine(config), random.Random(0)
    engine.learn_spellings(spellings_of(load_model_text(options.model).tokenizer))
    engine.compile_grammar(Grammar(GrammarKind.REGEX, "a"))
    ratios: list[float] = []
    largest: dict[str, list[float]] = {}
    for number in range(options.rounds):
        found = {with_json: pace(engine, rng, with_json) for with_json in ((False, True), (True, False))[number % 2]}
        ratios.append(found[True] / found[False])
        print(json.dumps({"round": number, "plain": found[False], "beside_json": found[True]}), flush=True)
        for kind in ("nobody", "plain", *(f"schemas of {size}" for size in options.properties)):
            size = int(kind.split()[-1]) if kind.startswith("schemas") else 0
            median_ms, most_ms = gaps(engine, rng, "new schemas" if size else kind, size)
            largest.setdefault(kind, []).append(most_ms / median_ms)
            row = {"round": number, "joining": kind, "median_ms": median_ms, "largest_ms": most_ms}
            print(json.dumps(row), flush=True)
    print(f"pace of 15 streams beside one JSON request: {cell(ratios)} of what it is beside a plain one")
    for kind, found in largest.items():
        print(f"largest gap while {kind} join: {cell(found)} x the median gap")


def cell(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f}-{max(values):.3f})"


if __name__ == "__main__":
    main()
