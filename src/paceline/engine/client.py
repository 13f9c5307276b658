"""The API process's view of the engine: submit, cancel, finish, gauges; and the engine process's supervisor.

Owns the engine process, the socket to it and the table of open requests. Replies are read by a callback of the event
loop (no task, no copy) and handed to the `OutputStream` that asked. When the process dies, every open stream ends
with UnavailableError and a new process is started, with growing pauses; a process that keeps dying is given up. One
that has work and makes no step for the timeout is killed, which is a death like any other.

    loading --Ready--> ready --process died--> loading ... --MAX_RESTARTS in a row--> dead
       |  LoadFailed, or death before the first Ready
       +----------------------------------------------> dead
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from enum import StrEnum

import msgspec
import zmq

from paceline.core.output import SequenceOutput
from paceline.core.request import Request, RequestId
from paceline.core.spellings import Spellings
from paceline.engine.child import EngineChild, EngineCommand, start_engine
from paceline.engine.contract import EngineGauges, EngineLimits
from paceline.engine.messages import (
    AskGauges,
    Cancel,
    Command,
    Finish,
    Gauges,
    LearnSpellings,
    LoadFailed,
    Outputs,
    Ready,
    Refused,
    Reply,
    Submit,
)
from paceline.engine.progress import ProgressWatch
from paceline.engine.stream import OutputStream
from paceline.errors import UnavailableError

logger = logging.getLogger(__name__)

MAX_RESTARTS = 5
FIRST_PAUSE_S = 0.5
HEALTHY_AFTER_S = 60.0
RETRY_AFTER_S = 2.0


class EngineState(StrEnum):
    """Whether requests can be served, and if not, why."""

    LOADING = "loading"
    READY = "ready"
    DEAD = "dead"


class EngineClient:
    """One engine process at a time, restarted when it dies. All methods run on the event loop's thread."""

    def __init__(self, command: EngineCommand, child: EngineChild, live_timeout_s: float = 0.0) -> None:
        """`child` is the first process, started early from `command`; later ones are started here. `live_timeout_s` 0:
        an engine that hangs is waited for.
        """
        self.state = EngineState.LOADING
        self.failure: str | None = None
        self.num_restarts = 0
        self._command = command
        self._child = child
        self._limits: EngineLimits | None = None
        self._spellings: Spellings | None = None
        self._streams: dict[RequestId, OutputStream] = {}
        self._gauge_waiters: deque[asyncio.Future[EngineGauges]] = deque()
        self._next_request_id = 0
        self._deaths_in_a_row = 0
        self._ready_since_s = 0.0
        self._is_closing = False
        self._settled = asyncio.Event()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)
        self._context = zmq.Context()
        self._loop = asyncio.get_running_loop()
        self._live_timeout_s = live_timeout_s
        self._watch = ProgressWatch(live_timeout_s, time.monotonic())
        self._watcher: asyncio.Future[None] | None = None
        self._attach()

    @property
    def limits(self) -> EngineLimits:
        """The facts of the engine. Only once it has been ready."""
        assert self._limits is not None, "limits are known after the first Ready"
        return self._limits

    @property
    def num_open_requests(self) -> int:
        """Requests that are not finished yet."""
        return len(self._streams)

    async def settled(self) -> EngineState:
        """Wait until the first load has succeeded or failed; `failure` says why it failed."""
        await self._settled.wait()
        return self.state

    def check_ready(self) -> None:
        """Raise UnavailableError unless requests can be served now."""
        if self.state is EngineState.LOADING:
            raise UnavailableError("the model is loading", RETRY_AFTER_S)
        if self.state is EngineState.DEAD:
            raise UnavailableError("the engine is down", RETRY_AFTER_S)

    def check_live(self) -> None:
        """Raise UnavailableError when waiting is in vain: the engine was given up, or has work and makes no step."""
        if self.state is EngineState.DEAD:
            raise UnavailableError("the engine is down", RETRY_AFTER_S)
        stalled_s = self._watch.stalled_s(time.monotonic())
        if self.state is EngineState.READY and stalled_s:
            raise UnavailableError(f"the engine has work and made no step for {stalled_s:.0f} s", RETRY_AFTER_S)

    def draw_request_id(self) -> RequestId:
        """A request id never used before by this client."""
        self._next_request_id += 1
        return RequestId(self._next_request_id)

    @property
    def knows_spellings(self) -> bool:
        """Whether `provide_spellings` was called."""
        return self._spellings is not None

    def provide_spellings(self, spellings: Spellings) -> None:
        """Tell the engine, and every one started after it, how tokens are spelled. A second call does nothing."""
        if self._spellings is None:
            self._spellings = spellings
            if self.state is EngineState.READY:
                self._send(LearnSpellings(spellings))

    def submit(self, request: Request, stream: OutputStream) -> None:
        """Queue a request whose news go to `stream`. Raises UnavailableError when the engine is not ready."""
        self.check_ready()
        if not self._streams:
            self._watch.saw_idle(time.monotonic())
        self._streams[request.request_id] = stream
        stream.expect(request.request_id, request.num_sequences)
        self._send(Submit.of(request))

    def cancel(self, request_id: RequestId) -> None:
        """End a request that has not finished; nothing is sent for one that has."""
        if self._streams.pop(request_id, None) is not None:
            self._send(Cancel(request_id))

    def finish(self, request_id: RequestId, choice_index: int, num_tokens: int) -> None:
        """A stop string ended one choice after `num_tokens` tokens; its stream hears nothing more about it."""
        stream = self._streams.get(request_id)
        if stream is None:
            return
        self._send(Finish(request_id, choice_index, num_tokens))
        if stream.close_choice(request_id, choice_index):
            del self._streams[request_id]

    async def gauges(self) -> EngineGauges:
        """Ask the engine for its state; answered between two steps. Raises UnavailableError when it is not ready."""
        self.check_ready()
        waiter: asyncio.Future[EngineGauges] = self._loop.create_future()
        self._gauge_waiters.append(waiter)
        self._send(AskGauges())
        return await waiter

    async def close(self) -> None:
        """End the engine process; open streams end with UnavailableError."""
        self._is_closing = True
        if self._watcher is not None:
            self._watcher.cancel()
        self._fail_open_requests("the server is shutting down")
        self._detach()
        await asyncio.to_thread(self._child.end)
        self._context.term()

    def _attach(self) -> None:
        socket: zmq.Socket[bytes] = self._context.socket(zmq.PAIR)
        socket.set(zmq.LINGER, 0)
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.RCVHWM, 0)
        socket.bind(self._child.address)
        self._socket = socket
        self._loop.add_reader(socket.fileno(), self._read)
        watcher = threading.Thread(target=self._await_exit, args=(self._child,), name="engine-watch", daemon=True)
        watcher.start()

    def _detach(self) -> None:
        if not self._socket.closed:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _send(self, command: Command) -> None:
        try:
            self._socket.send(self._encoder.encode(command), zmq.NOBLOCK)
        except zmq.Again:
            return  # The process has just died: its exit, once seen, ends every open request.
        # Sending can swallow the edge that announces a received frame, so look once more.
        self._loop.call_soon(self._read)

    def _read(self) -> None:
        while not self._socket.closed:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._handle(self._decoder.decode(frame))

    def _handle(self, reply: Reply) -> None:
        match reply:
            case Outputs(outputs):
                self._dispatch(outputs)
            case Refused(request_id):
                stream = self._streams.pop(request_id, None)
                if stream is not None:
                    stream.fail(reply.exception())
            case Gauges(gauges):
                waiter = self._gauge_waiters.popleft()
                if not waiter.done():
                    waiter.set_result(gauges)
            case Ready(limits):
                self._become_ready(limits)
            case LoadFailed(message):
                self._give_up(message)

    def _dispatch(self, outputs: list[SequenceOutput]) -> None:
        for output in outputs:
            stream = self._streams.get(output.request_id)
            # None: cancelled, or ended by a stop string, while this was on its way.
            if stream is not None and stream.put(output):
                del self._streams[output.request_id]

    def _become_ready(self, limits: EngineLimits) -> None:
        self._child.remove_address()
        self._limits = limits
        self._ready_since_s = time.monotonic()
        self.state = EngineState.READY
        if self._spellings is not None:
            self._send(LearnSpellings(self._spellings))
        self._settled.set()
        self._watch = ProgressWatch(self._live_timeout_s, self._ready_since_s)
        if self._live_timeout_s:
            self._watcher = asyncio.ensure_future(self._watch_progress(self._child, self._watch))

    def _give_up(self, message: str) -> None:
        self.state = EngineState.DEAD
        self.failure = message
        self._settled.set()

    async def _watch_progress(self, child: EngineChild, watch: ProgressWatch) -> None:
        """Ask the process how far it is, as long as it lives; kill it when two checks in a row found it stalled."""
        was_stalled, asked = False, None
        while child is self._child and self.state is EngineState.READY:
            now_s = time.monotonic()
            stalled_s = watch.stalled_s(now_s)
            if stalled_s and was_stalled:
                logger.error("the engine process made no step for %.1f s: killing it", stalled_s)
                child.process.kill()
                return
            was_stalled = bool(stalled_s)
            if not self._streams:
                watch.saw_idle(now_s)
            elif asked is None or asked.done():
                asked = asyncio.ensure_future(self._ask_progress(watch))
            await asyncio.sleep(watch.check_s)

    async def _ask_progress(self, watch: ProgressWatch) -> None:
        with contextlib.suppress(UnavailableError):
            watch.saw_gauges(await self.gauges(), time.monotonic())

    def _await_exit(self, child: EngineChild) -> None:
        exit_code = child.process.wait()
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_exit, child, exit_code)

    def _on_exit(self, child: EngineChild, exit_code: int) -> None:
        if self._is_closing or child is not self._child:
            return
        self._read()
        was_ready_for_s = time.monotonic() - self._ready_since_s if self.state is EngineState.READY else 0.0
        self._detach()
        child.end()
        self._fail_open_requests("the engine process died")
        if self.state is EngineState.DEAD:
            return
        if self._limits is None:
            self._give_up(f"the engine process ended with code {exit_code} while loading")
            return
        self._deaths_in_a_row = 1 if was_ready_for_s > HEALTHY_AFTER_S else self._deaths_in_a_row + 1
        if self._deaths_in_a_row > MAX_RESTARTS:
            self._give_up(f"the engine process died {self._deaths_in_a_row} times in a row")
            logger.error("%s; not restarting it again", self.failure)
            return
        pause_s = FIRST_PAUSE_S * 2 ** (self._deaths_in_a_row - 1)
        logger.error("the engine process ended with code %d; starting another in %.1f s", exit_code, pause_s)
        self.state = EngineState.LOADING
        self._loop.call_later(pause_s, self._restart)

    def _restart(self) -> None:
        if self._is_closing:
            return
        self.num_restarts += 1
        self._child = start_engine(self._command)
        self._attach()

    def _fail_open_requests(self, reason: str) -> None:
        error = UnavailableError(reason, RETRY_AFTER_S)
        for stream in set(self._streams.values()):
            stream.fail(error)
        self._streams.clear()
        for waiter in self._gauge_waiters:
            if not waiter.done():
                waiter.set_exception(error)
        self._gauge_waiters.clear()
