"""llama.cpp's turn: llama-batched-bench for throughput, llama-server over HTTP for the long prompt among streams.

The first drives the library without sampling or a server: an upper bound. It cannot add a request to a running batch,
so that work goes to the server, whose client shares the two cores.
"""

import http.client
import json
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from driver import About, Turn, take_turn
from work import (
    DECODE,
    INJECT_AFTER,
    LONG_OUTPUT,
    LONG_PROMPT,
    PREFILL,
    Figures,
    Stream,
    Work,
    figures_of,
    streams_of,
    warm_up_streams,
)

BATCH = ("-b", "2048", "-ub", "512", "-fa", "on")  # Its default sizes; flash attention on is the faster choice.
SERVER_EXTRA = ("--no-webui", "--threads-http", "1", "--cache-ram", "0", "-no-kvu")
SLOT_MARGIN = 256
START_TIMEOUT_S, REQUEST_TIMEOUT_S = 60.0, 300.0


class LlamaSession:
    """Runs the binaries; holds a server between warm-up and measurement."""

    def __init__(self, turn: Turn) -> None:
        self._binaries = turn.peers / "llama.cpp" / "bin"
        self._file = turn.peers / "models" / f"{turn.format_name}.gguf"
        self._weights = str(turn.options["weights"])
        self._threads = ("-t", str(turn.num_threads), "-tb", str(turn.num_threads))
        self._server: Server | None = None

    def warm_up(self, work: Work, seed: str) -> None:
        if work.has_long_prompt:
            self._server = Server(self._server_command(work))
            self._server.serve(warm_up_streams(work, seed)[: work.num_streams])

    def measure(self, work: Work, seed: str) -> Figures:
        if self._server is None:
            return self._batched_bench(work)
        try:
            streams = streams_of(work, seed)
            self._server.serve(streams)
            return figures_of(work, streams)
        finally:
            self._server.stop()
            self._server = None

    def about(self, work: Work) -> About:
        program = "llama-server" if work.has_long_prompt else "llama-batched-bench"
        command = self._server_command(work) if work.has_long_prompt else self._bench_command(work)
        interface = "HTTP, client on the same cores" if work.has_long_prompt else "in process, no sampling"
        flags = " ".join([program, *command[3:]])
        return About(self._version(program), self._weights, "f16 (default)", interface, flags)

    def _version(self, program: str) -> str:
        """What the binary says of itself; the build of an sdist knows no commit."""
        done = subprocess.run(
            [self._binaries / "llama-server", "--version"], capture_output=True, text=True, check=True
        )
        return next(line for line in (done.stderr + done.stdout).splitlines() if line.startswith("version"))

    def _bench_command(self, work: Work) -> list[str]:
        # A prefill runs twice and the second counts: the first allocates what later ones find.
        parallel = f"{work.num_streams},{work.num_streams}" if work.is_prefill else str(work.num_streams)
        context = str(work.num_streams * (work.prompt + work.output))
        shape = ["-npp", str(work.prompt), "-ntg", str(work.output), "-npl", parallel, "-c", context]
        return [str(self._binaries / "llama-batched-bench"), "-m", str(self._file), *shape, *BATCH, *self._threads]

    def _batched_bench(self, work: Work) -> Figures:
        command = [*self._bench_command(work), "--output-format", "jsonl"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        row = [json.loads(line) for line in answer.splitlines() if line.startswith('{"n_kv_max"')][-1]
        if work.is_prefill:
            return {PREFILL.name: row["speed_pp"]}
        return {DECODE.name: row["speed_tg"], "output_tokens_per_s": work.num_streams * work.output / row["t"]}

    def _server_command(self, work: Work) -> list[str]:
        """A cache of its own for every slot: in a shared one each stream attends over the cells of all."""
        slots = work.num_streams + 1
        context = slots * (LONG_PROMPT + LONG_OUTPUT + SLOT_MARGIN)
        shape = ["-np", str(slots), "-c", str(context)]
        return [
            str(self._binaries / "llama-server"),
            "-m",
            str(self._file),
            *shape,
            *BATCH,
            *self._threads,
            *SERVER_EXTRA,
        ]


class Server:
    """llama-server on a free port, until `stop`."""

    def __init__(self, command: list[str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process = subprocess.Popen(
            [*command, "--port", str(self._port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait_until_ready(Path(command[0]).name)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(REQUEST_TIMEOUT_S)

    def _wait_until_ready(self, name: str) -> None:
        give_up_s = time.perf_counter() + START_TIMEOUT_S
        while time.perf_counter() < give_up_s and self._process.poll() is None:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=START_TIMEOUT_S)
                connection.request("GET", "/health")
                if connection.getresponse().status == http.HTTPStatus.OK:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        self._process.kill()
        raise TimeoutError(f"{name} was not ready within {START_TIMEOUT_S:.0f} s")

    def serve(self, streams: list[Stream]) -> None:
        """All at once; the injected one when the first stream is far enough."""
        is_time = Event()
        with ThreadPoolExecutor(len(streams)) as pool:
            for done in [pool.submit(self._run, stream, is_time, stream is streams[0]) for stream in streams]:
                done.result()

    def _run(self, stream: Stream, is_time: Event, is_first: bool) -> None:
        if stream.is_injected and not is_time.wait(REQUEST_TIMEOUT_S):
            raise TimeoutError(f"the first stream did not reach {INJECT_AFTER} tokens in {REQUEST_TIMEOUT_S:.0f} s")
        body = {"prompt": stream.prompt, "n_predict": stream.num_outputs, "stream": True, "ignore_eos": True}
        body |= {"temperature": 0, "cache_prompt": False}
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=REQUEST_TIMEOUT_S)
        stream.submitted_s = time.perf_counter()
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        for line in connection.getresponse():
            if not line.startswith(b"data: {"):
                continue
            # Tokens that end inside a character come with the one that completes it.
            num_tokens = json.loads(line[6:])["tokens_predicted"]
            stream.token_times_s += [time.perf_counter()] * (num_tokens - len(stream.token_times_s))
            if is_first and num_tokens >= INJECT_AFTER:
                is_time.set()
        connection.close()


if __name__ == "__main__":
    take_turn(LlamaSession)
