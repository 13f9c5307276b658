"""An OpenAI-compatible server with a known latency law and a log of its own sends, on the clock the client uses.

Run as a process of its own: `python mock_server.py LAW_JSON` prints its port. Chunk i of an answer is sent at
received + first_s + i * gap_s; GET /log gives, for each request, when it was received and what was sent when.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

# The client's first two requests look the server over.
NUM_PROBES = 2


@dataclass
class Law:
    """How this server answers. `slots`: requests served at once, the others wait; None: no bound."""

    first_s: float = 0.05
    gap_s: float = 0.05
    tokens_per_chunk: int = 1
    text: str = " word"
    reports_usage: bool = True
    finish_reason: str = "length"
    num_chunks: int | None = None
    refused_fields: list[str] = field(default_factory=list)
    takes_ids: bool = True
    overhead_tokens: int = 0
    slots: int | None = None
    stall_prompt_tokens: int | None = None
    stall_s: float = 0.0
    statuses: list[int] = field(default_factory=list)
    breaks_after: int | None = None
    is_precise: bool = True


@dataclass
class Entry:
    """What happened to one request."""

    prompt: Any
    received_s: float
    body: dict[str, Any]
    sends: list[tuple[float, int]] = field(default_factory=list)
    ended_s: float = 0.0


class Mock:
    def __init__(self, law: Law) -> None:
        self.law = law
        self.log: list[Entry] = []
        self.slots = asyncio.Semaphore(law.slots or 10**6)
        self.stalled_until_s = 0.0
        self.num_posts = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                received_s = time.monotonic()
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                body = await reader.readexactly(length)
                method, path, _ = head.decode().split(" ", 2)
                if method == "GET":
                    self.answer(writer, *self.get(path))
                else:
                    await self.post(path, json.loads(body), received_s, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def get(self, path: str) -> tuple[int, object]:
        if path == "/log":
            return 200, [asdict(entry) for entry in self.log]
        if path == "/v1/models":
            return 200, {"data": [{"id": "mock", "max_model_len": 100_000}]}
        return (200, {"version": "1.0"}) if path == "/version" else (404, {})

    def answer(self, writer: asyncio.StreamWriter, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(data), data))

    def refusal(self, body: dict[str, Any]) -> str | None:
        for name in self.law.refused_fields:
            if name in body:
                hint = "; use max_completion_tokens" if name == "max_tokens" else ""
                return f"unknown field {name}{hint}"
        return "prompt must be a string" if isinstance(body.get("prompt"), list) and not self.law.takes_ids else None

    async def post(self, path: str, body: dict[str, Any], received_s: float, writer: asyncio.StreamWriter) -> None:
        prompt = body["messages"][0]["content"] if "messages" in body else body["prompt"]
        refusal = self.refusal(body)
        if refusal:
            self.answer(writer, 400, {"error": {"message": refusal}})
            return
        self.num_posts += 1
        number = self.num_posts - 1 - NUM_PROBES
        if self.law.statuses and number >= 0 and (status := self.law.statuses[number % len(self.law.statuses)]) != 200:
            self.answer(writer, status, {"error": {"message": "not now"}})
            return
        entry = Entry(prompt, received_s, body)
        self.log.append(entry)
        async with self.slots:
            await self.stream("chat" in path, entry, writer)

    async def stream(self, is_chat: bool, entry: Entry, writer: asyncio.StreamWriter) -> None:
        law, body = self.law, entry.body
        asked = body.get("max_tokens", body.get("max_completion_tokens"))
        num_chunks = law.num_chunks or -(-asked // law.tokens_per_chunk)
        begin_s = time.monotonic() if law.slots else entry.received_s
        num_prompt = len(entry.prompt if isinstance(entry.prompt, list) else entry.prompt.split())
        if law.stall_prompt_tokens is not None and num_prompt >= law.stall_prompt_tokens:
            self.stalled_until_s = time.monotonic() + law.stall_s
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        if is_chat:
            self.send(writer, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        for index in range(num_chunks):
            await self.wait_until(begin_s + law.first_s + index * law.gap_s)
            if law.breaks_after == index:
                writer.transport.abort()
                return
            said = {"delta": {"content": law.text}} if is_chat else {"text": law.text}
            finish = law.finish_reason if index == num_chunks - 1 else None
            entry.sends.append((time.monotonic(), law.tokens_per_chunk))
            self.send(writer, {"choices": [{"index": 0, **said, "finish_reason": finish}]})
        if law.reports_usage and "stream_options" in body:
            count = {"prompt_tokens": num_prompt + law.overhead_tokens}
            count["completion_tokens"] = num_chunks * law.tokens_per_chunk
            self.send(writer, {"choices": [], "usage": count})
        entry.ended_s = time.monotonic()
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")

    def send(self, writer: asyncio.StreamWriter, chunk: object) -> None:
        data = b"data: %b\n\n" % json.dumps(chunk).encode()
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))

    async def wait_until(self, due_s: float) -> None:
        """Timers of the event loop are up to a millisecond late; the last one is spent waiting busily."""
        while (due := max(due_s, self.stalled_until_s)) - (now := time.monotonic()) > 0.0015:
            await asyncio.sleep(due - now - 0.0013)
        while self.law.is_precise and time.monotonic() < due:
            pass


async def main() -> None:
    mock = Mock(Law(**json.loads(sys.argv[1])))
    server = await asyncio.start_server(mock.serve, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
