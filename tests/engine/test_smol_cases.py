"""Field cases on the real model, in process: token ids, and the bits of their logprobs, against plain runs."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import paceline.core.radix as radix
from exactness.mixes import Bits, NoReserve, token_bits
from paceline.config import EngineConfig
from paceline.core.output import SequenceOutput
from paceline.core.policy import Reserve
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.engine.engine import Engine
from paceline.engine.loading import load_engine
from paceline.text.model_text import load_model_text
from smol_engine import BLOCK_BYTES, MODEL

PROSE = Path(__file__).parents[1] / "data" / "prose.txt"
GREEDY = SamplingParams(temperature=0)
PENALIZED = SamplingParams(temperature=0, frequency_penalty=1.05, presence_penalty=1.0, repetition_penalty=1.3)

_numbers = itertools.count(1)


def make_engine(num_blocks: int = 256, budget: int = 256, reserve: Reserve | None = None) -> Engine:
    config = EngineConfig(
        max_model_len=4096, max_num_batched_tokens=budget, max_num_seqs=8, kv_memory_bytes=num_blocks * BLOCK_BYTES
    )
    engine = load_engine(config, reserve)
    assert engine.limits.pool_tokens == num_blocks * 16
    return engine


@pytest.fixture(scope="module")
def engine() -> Engine:
    """An engine with room for all that these tests ask at once."""
    return make_engine()


@cache
def prose_ids() -> tuple[int, ...]:
    return tuple(encode(PROSE.read_text()))


def encode(text: str) -> list[int]:
    return load_model_text(MODEL).tokenizer.encode(text, add_special_tokens=True)


def make_request(prompt: Sequence[int], max_tokens: int, sampling: SamplingParams = GREEDY) -> Request:
    """A request whose prefix cache nobody shares. It ends by length alone."""
    number = next(_numbers)
    stop = StopRule(max_tokens)
    return Request(RequestId(number), token_array(prompt), stop, sampling, namespace=str(number).encode())


def run(engine: Engine, *requests: Request) -> list[list[Bits]]:
    """Submit all at once; the bits of each choice of each request."""
    for request in requests:
        engine.submit(request)
    outputs = run_to_end(engine)
    return [
        [bits_of(outputs, request.request_id, choice) for choice in range(request.num_sequences)]
        for request in requests
    ]


def run_to_end(engine: Engine) -> list[SequenceOutput]:
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    return outputs


def bits_of(outputs: list[SequenceOutput], request_id: RequestId, choice: int = 0) -> Bits:
    own = [output for output in outputs if (output.request_id, output.choice_index) == (request_id, choice)]
    return [token_bits(token) for output in own for token in output.tokens]


def test_b017_penalties_of_one_request_leave_the_other_alone(engine: Engine) -> None:
    """B017, first half: P1 greedy without penalties; P2, much longer, with 1.05 / 1 / 1.3; alone and in both orders."""

    def p1() -> Request:
        return make_request(encode("One, two, three, four,"), 40)

    def p2(sampling: SamplingParams = PENALIZED) -> Request:
        return make_request(prose_ids()[:300], 60, sampling)

    (one,), (two,), (without,) = (run(engine, request)[0] for request in (p1(), p2(), p2(GREEDY)))
    assert two != without, "the penalties change nothing here, so this test could not fail"
    assert run(engine, p1(), p2()) == [[one], [two]]
    assert run(engine, p2(), p1()) == [[two], [one]]


@pytest.mark.parametrize("num_choices", [1, 4])
def test_b013_a_seed_survives_a_preemption(engine: Engine, num_choices: int) -> None:
    """B013: R in the middle of a preemption, and with n 4; 12 blocks of 16, 11 of them for an older request."""
    sampling = SamplingParams(temperature=0.8, seed=42)

    def r(num_sequences: int = num_choices) -> Request:
        return replace(make_request(encode("Once"), 32, sampling), num_sequences=num_sequences)

    ((alone,),) = run(engine, r(1))
    (plain,) = run(engine, r())
    assert plain[0] == alone
    assert len({tuple(bits) for bits in plain}) == num_choices
    tight = make_engine(num_blocks=12, reserve=NoReserve())
    older, asked = make_request(prose_ids()[:140], 52), r()
    tight.submit(older)
    tight.step()
    tight.submit(asked)
    outputs = run_to_end(tight)
    assert tight.gauges().num_preemptions > 0
    assert [bits_of(outputs, asked.request_id, choice) for choice in range(num_choices)] == plain


class CollidingBytes(bytes):
    """Equal only by content, but all in one bucket."""

    def __hash__(self) -> int:
        return 0


def test_b033_with_a_constant_hash_content_still_decides(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """B033, end to end: two different 64-token prompts, then each of them again, in one cache under a constant hash."""
    prompts = [prose_ids()[:64], prose_ids()[64:128]]
    plain = [run(engine, make_request(prompt, 8))[0] for prompt in prompts]
    monkeypatch.setattr(radix, "block_key", CollidingBytes)
    for prompt, expected, num_cached in zip(prompts * 2, plain * 2, (0, 0, 63, 63), strict=True):
        request = replace(make_request(prompt, 8), namespace=b"shared")
        engine.submit(request)
        outputs = run_to_end(engine)
        assert {output.num_cached_tokens for output in outputs} == {num_cached}
        assert [bits_of(outputs, request.request_id)] == expected


def test_b037_a_prompt_longer_than_the_budget_gives_the_same_tokens() -> None:
    """B037: context 4096; a prompt of 1,000 tokens under budgets 64 and 4096, one of 65 also under budget 1."""

    def answers(budget: int, *prompt_sizes: int) -> list[Bits]:
        engine = make_engine(budget=budget)
        return [run(engine, make_request(prose_ids()[:size], 24))[0][0] for size in prompt_sizes]

    expected = answers(4096, 1000, 65)
    assert [len(bits) for bits in expected] == [24, 24]
    assert answers(64, 1000, 65) == expected
    assert answers(1, 65) == expected[1:]
