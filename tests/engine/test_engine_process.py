"""The engine process and its client, with a scripted engine inside a real child process."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline.core.output import SequenceOutput
from paceline.core.request import FinishReason, Grammar, GrammarKind, Request, SamplingParams, StopRule, token_array
from paceline.engine.child import EngineCommand, start_engine
from paceline.engine.client import EngineClient, EngineState
from paceline.engine.stream import OutputStream
from paceline.errors import ContextLengthError, OverloadedError, UnavailableError

TESTS = Path(__file__).parents[1]
SCRIPT = [10, 11, 12, 13]


@pytest.fixture(autouse=True)
def _child_finds_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{TESTS}:{TESTS.parent / 'src'}")


@asynccontextmanager
async def engine(**config: Any) -> AsyncIterator[EngineClient]:
    command = EngineCommand("scripted_engine:build", {"script": SCRIPT} | config)
    client = EngineClient(command, start_engine(command))
    try:
        await client.settled()
        yield client
    finally:
        await client.close()


def request(client: EngineClient, max_tokens: int = 3, prompt: tuple[int, ...] = (1, 2, 3), **fields: Any) -> Request:
    return Request(client.draw_request_id(), token_array(prompt), StopRule(max_tokens), SamplingParams(), **fields)


async def collect(stream: OutputStream) -> list[SequenceOutput]:
    outputs: list[SequenceOutput] = []
    while batch := await stream.take():
        outputs += batch
    return outputs


def token_ids(outputs: list[SequenceOutput], choice_index: int = 0) -> list[int]:
    return [token.token_id for o in outputs if o.choice_index == choice_index for token in o.tokens]


def test_outputs_arrive_in_order_and_end_once() -> None:
    async def scenario() -> None:
        async with engine() as client:
            stream = OutputStream()
            client.submit(request(client, max_tokens=6, num_sequences=2), stream)
            outputs = await asyncio.wait_for(collect(stream), 5)
            assert token_ids(outputs, 0) == [10, 11, 12, 13, 10, 11]
            assert token_ids(outputs, 1) == [11, 12, 13, 10, 11, 12]
            assert [o.finish_reason for o in outputs if o.finish_reason] == [FinishReason.LENGTH] * 2
            assert client.num_open_requests == 0
            assert await stream.take() == []

    asyncio.run(scenario())


def test_a_request_crosses_the_wire_unchanged() -> None:
    import msgspec

    from paceline.engine.messages import Command, Submit

    original = Request(
        request_id=2**40,
        prompt=token_array([0, 2**31 - 1]),
        stop=StopRule(5, 2, frozenset({7})),
        sampling=SamplingParams(
            seed=2**64 - 1,
            logit_bias=((3, -100.0),),
            top_k=4,
            num_logprobs=0,
            grammar=Grammar(GrammarKind.REGEX, "é+", "guided_regex"),
        ),
        num_sequences=3,
        arrival_s=1.25,
        priority=-7,
        namespace=b"salt:\xff",
    )
    wire = msgspec.msgpack.encode(Submit.of(original))
    arrived = msgspec.msgpack.decode(wire, type=Command).request()
    assert arrived == original
    assert arrived.sampling.grammar.param == "guided_regex"


def test_refusals_come_back_as_the_errors_they_were() -> None:
    async def scenario() -> None:
        async with engine(context=64, max_queued=1, step_s=0.01) as client:
            too_long, running, one_too_many = OutputStream(), OutputStream(), OutputStream()
            client.submit(request(client, max_tokens=62), too_long)
            client.submit(request(client, max_tokens=60), running)
            client.submit(request(client, max_tokens=1), one_too_many)
            with pytest.raises(ContextLengthError, match="65 tokens do not fit the context of 64") as refused:
                await too_long.take()
            assert refused.value.param == "messages"
            with pytest.raises(OverloadedError) as overloaded:
                await one_too_many.take()
            assert overloaded.value.retry_after_s == 1.0
            assert len(token_ids(await collect(running))) == 60

    asyncio.run(scenario())


def test_cancel_frees_the_engine_and_finish_closes_one_choice() -> None:
    async def scenario() -> None:
        async with engine(step_s=0.002) as client:
            stream = OutputStream()
            asked = request(client, max_tokens=4000, num_sequences=2)
            client.submit(asked, stream)
            await stream.take()
            client.finish(asked.request_id, 1, 1)
            client.cancel(asked.request_id)
            gauges = await client.gauges()
            assert (gauges.num_running, gauges.num_blocks_in_use, client.num_open_requests) == (0, 0, 0)

    asyncio.run(scenario())


def test_a_killed_engine_fails_its_requests_and_comes_back() -> None:
    async def scenario() -> None:
        async with engine(step_s=0.002, faults={"99": "exit", "98": "raise"}) as client:
            for first_token in (99, 98):
                stream, doomed = OutputStream(), OutputStream()
                client.submit(request(client, max_tokens=4000), stream)
                await stream.take()
                client.submit(request(client, prompt=(first_token,)), doomed)
                died_s = time.monotonic()
                with pytest.raises(UnavailableError, match="died"):
                    await collect(stream)
                with pytest.raises(UnavailableError):
                    await collect(doomed)
                assert time.monotonic() - died_s < 1.0
                assert client.state is EngineState.LOADING
                with pytest.raises(UnavailableError):
                    client.submit(request(client), OutputStream())
                while client.state is not EngineState.READY:
                    await asyncio.sleep(0.02)
                again = OutputStream()
                client.submit(request(client), again)
                assert token_ids(await collect(again)) == SCRIPT[:3]
            assert client.num_restarts == 2

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_model_that_cannot_load_is_told_and_not_retried() -> None:
    async def scenario() -> None:
        async with engine(load_error="model.gguf is cut off at byte 100") as client:
            assert client.state is EngineState.DEAD
            assert client.failure == "model.gguf is cut off at byte 100"

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_crash_while_loading_is_a_failure() -> None:
    async def scenario() -> None:
        async with engine(no_such_option=1) as client:
            assert client.state is EngineState.DEAD
            assert client.failure == "the engine process ended with code 1 while loading"

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_an_idle_engine_sleeps() -> None:
    async def scenario() -> None:
        async with engine() as client:
            pid = client._child.process.pid
            before_s = cpu_time_s(pid)
            await asyncio.sleep(1.0)
            assert cpu_time_s(pid) - before_s <= 0.01

    asyncio.run(scenario())


def cpu_time_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("load_s", [0.0, 30.0])
def test_no_orphan_when_the_parent_is_killed(load_s: float) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(load_s)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        child_pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    deadline_s = time.monotonic() + 5
    while is_running(child_pid):
        assert time.monotonic() < deadline_s, "the engine process outlived its parent"
        time.sleep(0.02)


PARENT = """
import asyncio, sys
from paceline.engine.child import EngineCommand, start_engine
from paceline.engine.client import EngineClient
async def main(load_s):
    command = EngineCommand("scripted_engine:build", {"script": [1], "load_s": load_s})
    child = start_engine(command)
    client = EngineClient(command, child)
    if not load_s:
        await client.settled()
    print(child.process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main(float(sys.argv[1])))
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_engine_process_imports_neither_http_nor_text_nor_torch() -> None:
    code = (
        "import sys, paceline.engine.process; "
        "print([m for m in ('fastapi', 'torch', 'tokenizers', 'jinja2', 'asyncio', 'paceline.text', 'paceline.server')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_socket_directory_is_gone_once_ready() -> None:
    async def scenario() -> None:
        async with engine() as client:
            assert not Path(client._child.address.removeprefix("ipc://")).parent.exists()

    asyncio.run(scenario())
