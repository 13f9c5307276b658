"""The real engine in its process: what a client that goes away leaves behind, by the engine's own gauges."""

import asyncio

from paceline.config import EngineConfig
from paceline.core.request import Request, SamplingParams, StopRule, token_array
from paceline.engine.client import EngineClient
from paceline.engine.contract import EngineGauges
from paceline.engine.stream import OutputStream
from smol_engine import smol_engine

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
