"""The API process from its first import of HTTP to its exit code."""

import asyncio
import gc
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn

from paceline.config import ServeConfig
from paceline.engine.child import EngineChild, EngineCommand
from paceline.engine.client import EngineClient, EngineState
from paceline.errors import CheckpointError, UnavailableError
from paceline.server.around import surround
from paceline.server.context import DRAIN_RETRY_AFTER_S, ServingContext
from paceline.server.counted import HttpCounter
from paceline.server.introduce import introduce_when_quiet
from paceline.server.listen import shown_address
from paceline.server.logs import configure_logging
from paceline.server.pulse import beat
from paceline.server.routes import create_app
from paceline.server.summary import summary_lines
from paceline.text.model_text import ModelText

DRAIN_POLL_S = 0.02
CONNECTION_CLOSE_S = 1
QUIT_EXIT_CODE = 130
SIGNALS = (signal.SIGTERM, signal.SIGINT)

TextLoader = Callable[[ServeConfig], ModelText]


class QuietServer(uvicorn.Server):
    """Uvicorn without its signal handlers: when to stop is decided here."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


@dataclass(frozen=True, slots=True)
class Started:
    """What exists before HTTP is imported: the engine process, how it was started, and the bound port."""

    command: EngineCommand
    child: EngineChild
    listener: socket.socket


def run(config: ServeConfig, started: Started, load_text: TextLoader) -> int:
    """Serve until told to stop; returns the exit code. Raises CheckpointError when the model can't be loaded."""
    configure_logging(config.log_format)
    return asyncio.run(serve(config, started, load_text))


async def serve(config: ServeConfig, started: Started, load_text: TextLoader) -> int:
    """The whole life of the server, on its event loop."""
    stop = asyncio.Event()
    handle_signals(stop, started.child)
    client = EngineClient(started.command, started.child, config.live_timeout_s)
    seeds = None if config.seed is None else random.Random(config.seed)
    context = ServingContext(config, client, int(time.time()), seeds=seeds)
    server = QuietServer(server_config(context))
    serving = asyncio.ensure_future(server.serve([started.listener]))
    introducing = asyncio.ensure_future(introduce_when_quiet(context))
    try:
        await unless(stop, load(context, load_text))
        gc.collect()
        gc.freeze()  # what is loaded stays: collections need not walk it
        if not stop.is_set():
            assert context.text is not None, "text and engine have loaded"
            beating = asyncio.ensure_future(beat(context))
            address = shown_address(started.listener, config.host)
            for line in summary_lines(config, client.limits, address, context.text.defaults):
                print(line, flush=True)
            await stop.wait()
            beating.cancel()
        await drain(context)
    finally:
        introducing.cancel()
        server.should_exit = True
        await serving
        await client.close()
    return 0


def server_config(context: ServingContext) -> uvicorn.Config:
    """Uvicorn as we use it: its errors are logged by our handler, no websockets, no lifespan."""
    return uvicorn.Config(
        HttpCounter(surround(create_app(context), context), context.metrics.requests),
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CONNECTION_CLOSE_S,
    )


def handle_signals(stop: asyncio.Event, child: EngineChild) -> None:
    """The first signal sets `stop`; the second ends the process, and the engine process with it, at once."""

    def on_signal() -> None:
        if stop.is_set():
            child.remove_address()
            os._exit(QUIT_EXIT_CODE)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)


async def unless(stop: asyncio.Event, work: "asyncio.Future[None]") -> None:
    """Wait for `work`, but no longer than until `stop` is set."""
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        stopped.cancel()
        work.cancel()


def load(context: ServingContext, load_text: TextLoader) -> "asyncio.Future[None]":
    """Wait for the engine and load the text side beside it. Raises CheckpointError when either can't be loaded."""

    async def wait_for_text() -> None:
        context.text = await asyncio.to_thread(load_text, context.config)

    async def wait_for_engine() -> None:
        if await context.client.settled() is EngineState.DEAD:
            raise CheckpointError(context.client.failure or "the engine can't start")

    async def both() -> None:
        await asyncio.gather(wait_for_text(), wait_for_engine())

    return asyncio.ensure_future(both())


async def drain(context: ServingContext) -> None:
    """Let open requests finish, for as long as the config allows; then end them with an error."""
    context.is_draining = True
    deadline_s = time.monotonic() + context.config.shutdown_timeout_s
    while context.num_open_requests and time.monotonic() < deadline_s:
        await asyncio.sleep(DRAIN_POLL_S)
    error = UnavailableError("the server shut down before this request was finished", DRAIN_RETRY_AFTER_S)
    for session in tuple(context.open_sessions):
        session.fail(error)
    while context.num_open_requests and time.monotonic() < deadline_s + CONNECTION_CLOSE_S:
        await asyncio.sleep(DRAIN_POLL_S)
