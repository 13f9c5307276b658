"""Waits for N streams, then sends every one an event each tick, as fast as N writes go: `flood_server.py N EVENTS`."""

import asyncio
import json
import sys

TICK_S = 0.002
EVENT = (
    b"data: %b\n\n"
    % json.dumps(
        {
            "id": "cmpl-1",
            "object": "text_completion",
            "created": 1,
            "model": "flood",
            "choices": [{"index": 0, "text": " the", "logprobs": None, "finish_reason": None}],
        }
    ).encode()
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Stream(asyncio.Protocol):
    def __init__(self, open_streams: list["Stream"]) -> None:
        self.open_streams = open_streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if b"POST" in data:
            self.transport.write(HEAD)
            self.open_streams.append(self)


async def main() -> None:
    num_streams, num_events = int(sys.argv[1]), int(sys.argv[2])
    loop = asyncio.get_running_loop()
    streams: list[Stream] = []
    server = await loop.create_server(lambda: Stream(streams), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    while len(streams) < num_streams:
        await asyncio.sleep(0.01)
    due_s = loop.time()
    for _ in range(num_events):
        for stream in streams:
            stream.transport.write(CHUNK)
        due_s += TICK_S
        await asyncio.sleep(max(0.0, due_s - loop.time()))
    for stream in streams:
        stream.transport.write(END)
    await asyncio.sleep(60)


asyncio.run(main())
