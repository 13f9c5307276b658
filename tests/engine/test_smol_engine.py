"""The real engine in its process: what a client that goes away leaves behind, by the engine's own gauges."""

import asyncio

import pytest

from paceline.config import EngineConfig
from paceline.core.request import FinishReason, Grammar, GrammarKind, Request, SamplingParams, StopRule, token_array
from paceline.engine.client import EngineClient
from paceline.engine.contract import EngineGauges
from paceline.engine.stream import OutputStream
from paceline.errors import RequestError
from paceline.server.model_text import spellings_of
from paceline.text.model_text import load_model_text
from smol_engine import MODEL, smol_engine

CONFIG = EngineConfig(kv_memory_bytes=64 * 2**20, max_num_batched_tokens=64, max_num_seqs=8)


def endless(client: EngineClient, num_prompt_tokens: int, num_sequences: int) -> Request:
    prompt = [1000 + (7 * client.num_open_requests + i) % 5000 for i in range(num_prompt_tokens)]
    sampling = SamplingParams(temperature=1.0, seed=1)
    return Request(client.draw_request_id(), token_array(prompt), StopRule(1500), sampling, num_sequences=num_sequences)


def nothing_runs(gauges: EngineGauges) -> bool:
    return (gauges.num_waiting, gauges.num_running, gauges.num_blocks_in_use) == (0, 0, 0)


def test_b019_a_cancelled_request_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with smol_engine(CONFIG) as client:
            for times in range(20):
                stream = OutputStream()
                # Every other one is cancelled while its prompt is still in chunks: no output has come yet.
                request = endless(client, 500 if times % 2 else 5, 1)
                client.submit(request, stream)
                if times % 2 == 0:
                    await stream.take()
                client.cancel(request.request_id)
                gauges = await asyncio.wait_for(client.gauges(), 1.0)
                assert nothing_runs(gauges), (times, gauges)
            idle_at = (await client.gauges()).step_index
            await asyncio.sleep(0.2)
            assert (await client.gauges()).step_index <= idle_at + 1

    asyncio.run(scenario())


def test_b021_all_choices_of_a_request_are_cancelled() -> None:
    async def scenario() -> None:
        async with smol_engine(CONFIG) as client:
            for num_finished in (0, 1):
                stream = OutputStream()
                request = endless(client, 40, 4)
                client.submit(request, stream)
                tokens_of: dict[int, int] = {}
                while sum(tokens_of.values()) < 20 or len(tokens_of) < 4:
                    for output in await stream.take():
                        tokens_of[output.choice_index] = tokens_of.get(output.choice_index, 0) + len(output.tokens)
                for choice_index in range(num_finished):
                    client.finish(request.request_id, choice_index, tokens_of[choice_index])
                client.cancel(request.request_id)
                gauges = await asyncio.wait_for(client.gauges(), 1.0)
                assert nothing_runs(gauges), (num_finished, gauges)
                assert client.num_open_requests == 0

    asyncio.run(scenario())


def test_an_idle_engine_wakes_when_a_grammar_is_compiled_or_found_to_be_bad() -> None:
    async def scenario() -> None:
        async with smol_engine(CONFIG) as client:
            early = await ask_for(client, Grammar(GrammarKind.CHOICE, '["yes","no"]'))
            bad = await ask_for(client, Grammar(GrammarKind.LARK, "start: foo", "guided_grammar"))
            # Both wait: the engine does not know the vocabulary yet.
            assert (await client.gauges()).num_waiting == 2
            client.provide_spellings(spellings_of(load_model_text(MODEL).tokenizer))
            outputs = []
            while batch := await asyncio.wait_for(early.take(), 10):
                outputs += batch
            assert outputs[-1].finish_reason is FinishReason.STOP
            with pytest.raises(RequestError, match="foo") as refused:
                await asyncio.wait_for(bad.take(), 10)
            assert refused.value.param == "guided_grammar"
            assert nothing_runs(await client.gauges())

    asyncio.run(scenario())


async def ask_for(client: EngineClient, grammar: Grammar) -> OutputStream:
    stream = OutputStream()
    sampling = SamplingParams(temperature=0, grammar=grammar)
    stop = StopRule(16, stop_token_ids=frozenset({0, 2}))
    client.submit(Request(client.draw_request_id(), token_array([1000, 1001]), stop, sampling), stream)
    return stream
