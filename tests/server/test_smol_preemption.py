"""B027 on the real model: what four streams show of a preemption, through the server's own sessions. Nothing."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.config import EngineConfig
from paceline.engine.client import EngineClient
from paceline.text.model_text import ModelText, load_model_text
from smol_engine import BLOCK_BYTES, MODEL, Answer, ask, smol_engine

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
NUM_TOKENS = 150


@dataclass(frozen=True, slots=True)
class Expected:
    """The requests, and what each answers alone."""

    text: ModelText
    requests: list[dict[str, Any]]
    plain: list[Answer]


@pytest.fixture(scope="module")
def expected() -> Expected:
    text = load_model_text(MODEL)
    requests = bodies(text)

    async def scenario() -> list[Answer]:
        async with smol_engine(engine_config(200)) as roomy:
            return await plain_runs(roomy, text, requests)

    return Expected(text, requests, asyncio.run(scenario()))


def bodies(text: ModelText) -> list[dict[str, Any]]:
    """Four requests whose 250 tokens take 16 blocks each. The third gets its stop strings later."""
    ids = text.tokenizer.encode(PROSE.read_text(), add_special_tokens=False)
    shared = {"max_tokens": NUM_TOKENS, "ignore_eos": True, "temperature": 0.8}
    requests = [shared | {"prompt": ids[100 * k : 100 * k + 100], "seed": k + 1} for k in range(4)]
    requests[3] |= {"frequency_penalty": 1.05, "presence_penalty": 1, "repetition_penalty": 1.3}
    return requests


async def plain_runs(client: EngineClient, text: ModelText, requests: list[dict[str, Any]]) -> list[Answer]:
    """Each alone, with a cache of its own; the third with stop strings out of its last quarter."""
    third = await ask(client, text, requests[2] | {"cache_salt": "T"})
    late = sum(map(len, third.texts[: NUM_TOKENS * 3 // 4]))
    stop = next(third.text[at : at + 8] for at in range(late, len(third.text)) if is_first(third.text, at, 8))
    requests[2]["stop"] = ["no such text", stop]
    return [await ask(client, text, body | {"cache_salt": str(k)}) for k, body in enumerate(requests)]


def is_first(text: str, at: int, length: int) -> bool:
    return text.index(text[at : at + length]) == at


def engine_config(num_blocks: int) -> EngineConfig:
    return EngineConfig(max_model_len=1024, kv_memory_bytes=num_blocks * BLOCK_BYTES)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 3, 2, 0)])
def test_b027_preemption_neither_loses_nor_repeats_output(expected: Expected, order: tuple[int, ...]) -> None:
    """B027 without the grammar: 40 blocks of 16; prompts of 100, max_tokens 150, seeds 1 to 4 at temperature 0.8.

    A fresh engine has learned no lengths and expects half of max_tokens: it admits three, which outgrow the pool.
    """

    async def crowd() -> list[Answer]:
        async with smol_engine(engine_config(40)) as tight:
            assert tight.limits.pool_tokens == 640
            asked = [ask(tight, expected.text, expected.requests[index]) for index in order]
            answers = await asyncio.gather(*asked)
            counters = (await tight.gauges()).counters
            assert counters.num_preemptions > 0
            # B063: what a sequence finds of its own work when it resumes is no hit.
            assert counters.num_prompt_tokens == counters.num_queried_tokens == 4 * 100
            assert counters.num_cached_tokens == sum(answer.usage.cached_tokens for answer in answers)
            return answers

    for index, answer in zip(order, asyncio.run(crowd()), strict=True):
        plain = expected.plain[index]
        assert (answer.tokens, answer.text) == (plain.tokens, plain.text), index
        assert (answer.finish_reasons, answer.usage) == (plain.finish_reasons, plain.usage), index


def test_b027_the_plain_runs_are_what_the_case_asks_for(expected: Expected) -> None:
    assert [answer.finish_reasons for answer in expected.plain] == [("length",), ("length",), ("stop",), ("length",)]
    for index in (0, 1, 3):
        answer = expected.plain[index]
        assert (len(answer.tokens), answer.usage.completion_tokens) == (NUM_TOKENS, NUM_TOKENS)
    assert NUM_TOKENS * 3 // 4 < expected.plain[2].usage.completion_tokens < NUM_TOKENS
