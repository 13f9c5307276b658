"""The engine process: drain commands, run one step, send its outputs, again; asleep in poll when there is no work.

Owns the engine object and its end of the socket. Never imports HTTP, text or torch. One thread works; a second one
sleeps on standard input, whose end of file means that the API process is gone or wants us gone, and ends the process:
no orphan stays behind, not even in the middle of loading. The process runs in a session of its own and ignores SIGINT
and SIGTERM, which some supervisors send to every process of a service: the API process decides, since its open requests
need us to the end.

Started as ``python -m paceline.engine.process ADDRESS FACTORY`` with the configuration as JSON on the first line of
standard input. FACTORY is ``module:function``; the function takes the decoded mapping and returns a SteppedEngine.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import zmq

from paceline.engine.contract import SteppedEngine
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
from paceline.errors import PacelineError

EngineFactory = Callable[[Mapping[str, Any]], SteppedEngine]

LOAD_FAILED_EXIT_CODE = 3
RECONNECT_INTERVAL_MS = 5
LINGER_MS = 2000


class CommandLoop:
    """Turns commands into calls of the engine and its outputs into replies."""

    def __init__(self, engine: SteppedEngine, socket: "zmq.Socket[bytes]") -> None:
        self._engine = engine
        self._socket = socket
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)

    def run_forever(self) -> None:
        """Serve until the process ends. Commands that arrived during a step take effect before the next."""
        while True:
            if not self._engine.has_work():
                self._socket.poll(self._engine.idle_timeout_ms())
            self._drain()
            outputs = self._engine.step() if self._engine.has_work() else []
            for request_id, error in self._engine.take_refusals():
                self._send(Refused.of(request_id, error))
            if outputs:
                self._send(Outputs(outputs))

    def _drain(self) -> None:
        while True:
            try:
                frame = self._socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._obey(self._decoder.decode(frame))

    def _obey(self, command: Command) -> None:
        match command:
            case Submit():
                self._submit(command)
            case Cancel(request_id):
                self._engine.cancel(request_id)
            case Finish(request_id, choice_index, num_tokens):
                self._engine.finish(request_id, choice_index, num_tokens)
            case LearnSpellings(spellings):
                self._engine.learn_spellings(spellings)
            case AskGauges():
                self._send(Gauges(self._engine.gauges()))

    def _submit(self, command: Submit) -> None:
        try:
            self._engine.submit(command.request())
        except PacelineError as error:
            self._send(Refused.of(command.request_id, error))

    def _send(self, reply: Reply) -> None:
        self._socket.send(self._encoder.encode(reply))


def load_factory(name: str) -> EngineFactory:
    """The function that ``module:function`` names."""
    module_name, _, function_name = name.partition(":")
    factory: EngineFactory = getattr(importlib.import_module(module_name), function_name)
    return factory


def exit_when_parent_leaves() -> None:
    """End this process, whatever it is doing, when standard input reaches its end."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=wait, name="parent-watch", daemon=True).start()


def connect(address: str) -> "zmq.Socket[bytes]":
    """A socket to the API process, which may bind the address later than we connect."""
    socket: zmq.Socket[bytes] = zmq.Context().socket(zmq.PAIR)
    socket.set(zmq.RECONNECT_IVL, RECONNECT_INTERVAL_MS)
    socket.set(zmq.LINGER, LINGER_MS)
    # Nothing is ever dropped or blocked on: what is in flight is bounded by the engine's queue and max_tokens.
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
    socket.connect(address)
    return socket


def read_config() -> Mapping[str, Any]:
    """The first line of standard input, byte by byte so that nothing after it is consumed."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    config: Mapping[str, Any] = msgspec.json.decode(bytes(line), type=dict[str, Any])
    return config


def main(address: str, factory_name: str) -> None:
    """Load the engine, say so, serve. A model that can't load is told in one sentence and its own exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    config = read_config()
    exit_when_parent_leaves()
    socket = connect(address)
    try:
        engine = load_factory(factory_name)(config)
    except PacelineError as error:
        socket.send(msgspec.msgpack.encode(LoadFailed(error.message)))
        socket.close()
        socket.context.term()
        sys.exit(LOAD_FAILED_EXIT_CODE)
    socket.send(msgspec.msgpack.encode(Ready(engine.limits)))
    CommandLoop(engine, socket).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
