"""Runs a batch: workers that each take the next unanswered line, ask, and see their answer to the disk.

As many requests are in flight as there are workers, whatever their lengths. The input is read only as fast as they take
from it, so memory does not grow with the files.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohttp
import msgspec

from paceline.errors import PacelineError
from paceline.offline.batch_ask import Asked, Asker
from paceline.offline.batch_files import OutputFile
from paceline.offline.batch_lines import BadLine, BatchRequest, answer_to_bad_line
from paceline.offline.batch_progress import BatchProgress
from paceline.offline.endpoint import Endpoint

CONNECT_S = 30.0

Lines = Iterator[BatchRequest | BadLine]


@dataclass(frozen=True, slots=True)
class AskedServer:
    """Which server is asked, how much at a time. `check_alive` raises UnavailableError when it is known to be gone."""

    endpoint: Endpoint
    concurrency: int
    check_alive: Callable[[], None]


async def run_batch(lines: Lines, server: AskedServer, output: OutputFile, progress: BatchProgress) -> None:
    """Answer every line. Raises UnavailableError when the server is gone, ConfigError when the output can't be
    written; answers that came before that are in the file, also when this is cancelled.
    """
    writer = AnswerWriter(output, progress)
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            asker = Asker(session, server.endpoint, server.check_alive)
            async with asyncio.TaskGroup() as workers:
                for _ in range(server.concurrency):
                    workers.create_task(work(lines, asker, writer))
    except* PacelineError as group:
        raise group.exceptions[0] from None
    finally:
        writer.write_rest()


async def work(lines: Lines, asker: Asker, writer: "AnswerWriter") -> None:
    """Take lines from the common iterator until there are none."""
    for line in lines:
        asked = Asked(answer_to_bad_line(line), 0) if isinstance(line, BadLine) else await asker.ask(line)
        await writer.put(asked)


class AnswerWriter:
    """Writes answers as they come. Those that arrive while the disk is busy share its next turn."""

    def __init__(self, output: OutputFile, progress: BatchProgress) -> None:
        self._output = output
        self._progress = progress
        self._turn = asyncio.Lock()
        self._ready: list[Asked] = []

    async def put(self, asked: Asked) -> None:
        """Returns when the disk has the answer."""
        self._ready.append(asked)
        async with self._turn:
            await asyncio.to_thread(self._write, self._take())

    def write_rest(self) -> None:
        """Write what has come and waits for its turn, when there will be none."""
        self._write(self._take())

    def _take(self) -> list[Asked]:
        ready, self._ready = self._ready, []
        return ready

    def _write(self, ready: list[Asked]) -> None:
        if ready:
            self._output.append([msgspec.json.encode(asked.answer) + b"\n" for asked in ready])
            self._progress.on_written(ready)
