"""`paceline chat` in a terminal and on a pipe, against real servers."""

import fcntl
import os
import pty
import re
import select
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from commands import paceline, start

from paceline.config import EngineConfig, ServeConfig
from paceline.engine.messages import Submit
from paceline.offline.chat import CONTROLS
from running_server import RunningServer, launch, wait_until_ready
from scripted_text import SCRIPT_TEXT, build

TIMING = re.compile(r"TTFT \d+ ms · (\d+) tokens · [\d.]+ tokens/s · prompt (\d+) tokens")


class Terminal:
    """A chat whose three streams are a terminal of ours."""

    def __init__(self, *arguments: object) -> None:
        self.ours, theirs = pty.openpty()
        self.seen = ""
        streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
        # In a session of its own it takes this terminal for its own, so that a typed Ctrl-C becomes a signal.
        take = {"start_new_session": True, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
        self.process = start("chat", *arguments, **streams, **take, env={"TERM": "xterm"})
        os.close(theirs)

    def wait_for(self, text: str, timeout_s: float = 20.0) -> str:
        """Read until `text` comes; everything since the last call up to its end."""
        deadline_s = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline_s, f"no {text!r} in {self.seen!r}"
            if select.select([self.ours], [], [], 0.1)[0]:
                self.seen += os.read(self.ours, 65536).decode("utf-8", "replace")
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())


@contextmanager
def terminal(*arguments: object) -> Iterator[Terminal]:
    opened = Terminal(*arguments)
    try:
        yield opened
    finally:
        if opened.process.poll() is None:
            opened.process.kill()
        opened.process.wait()
        os.close(opened.ours)


@dataclass(frozen=True)
class Watched:
    """A scripted server with a token in 30 ms (time enough to press a key), and what its engine noted."""

    url: str
    requests: Path
    journal: Path

    def last_prompt(self) -> str:
        """The newest request's prompt, as text."""
        submit = msgspec.json.decode(self.requests.read_bytes().splitlines()[-1], type=Submit)
        text = build(ServeConfig(EngineConfig()))
        return text.tokenizer.decode(submit.request().prompt, skip_special=False)


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("slow")
    requests, journal = folder / "requests", folder / "journal"
    engine = {"step_s": 0.03, "requests_log": str(requests), "journal": str(journal)}
    running = wait_until_ready(launch({}, engine))
    yield Watched(running.url, requests, journal)
    assert running.stop() == 0


def test_an_answer_is_streamed_with_its_timing_below(slow: Watched) -> None:
    with terminal("--url", slow.url, "--max-tokens", "20") as chat:
        chat.wait_for("> ")
        chat.type("Count!\n")
        chat.wait_for(" five")
        assert "eleven" not in chat.seen, "the answer came in one piece"
        shown = chat.wait_for("> ")
        assert SCRIPT_TEXT.removeprefix(" five")[:40] in shown
        timing = TIMING.search(shown)
        assert timing is not None, shown
        assert timing[1] == "20"
        assert int(timing[2]) == len("<user\nCount!>\n<assistant\n")
        assert "cut at the length limit" in shown
        chat.type("/exit\n")
        assert chat.process.wait(10) == 0


def test_ctrl_c_stops_the_answer_not_the_chat(slow: Watched) -> None:
    with terminal("--url", slow.url, "--max-tokens", "300", "--system", "Be brief.") as chat:
        chat.wait_for("> ")
        chat.type("Count!\n")
        chat.wait_for("five, six,")
        chat.type("\x03")
        chat.wait_for("stopped")
        chat.wait_for("> ")
        deadline_s = time.monotonic() + 2
        while not slow.journal.read_text().endswith(" 1\n"):
            assert time.monotonic() < deadline_s, "the engine still works on the stopped answer"
            time.sleep(0.03)
        chat.type("\x03")  # at the prompt, it only clears the line
        chat.wait_for("> ")
        chat.type("/stats\n")
        assert "1 answers" in chat.wait_for("remembered")
        chat.type("/nonsense\n")
        chat.wait_for("/nonsense is no command")
        chat.type("More\n")
        chat.wait_for("five, six,")
        chat.type("\x03")
        chat.wait_for("stopped")
        prompt = slow.last_prompt()
        system, first, stopped, second, *_ = prompt.split("<|im_start|>")[1:]
        assert (system, first) == ("system\nBe brief.<|im_end|>\n", "user\nCount!<|im_end|>\n")
        assert stopped.startswith("assistant\n five, six,")
        assert second == "user\nMore<|im_end|>\n"
        chat.type("/reset\n")
        chat.wait_for("forgotten")
        chat.type("Anew\n")
        chat.wait_for("five,")
        assert "Count!" not in slow.last_prompt()
        assert "Be brief." in slow.last_prompt()
        chat.type("\x03")
        chat.wait_for("stopped")
        chat.wait_for("> ")  # Before it the terminal drops the end of input, as before a shell's prompt.
        chat.type("\x04")
        assert chat.process.wait(10) == 0


def test_a_refusal_is_told_and_the_chat_goes_on(slow: Watched) -> None:
    with terminal("scripted", "--url", slow.url, "--max-tokens", "100") as chat:
        chat.wait_for("> ")
        chat.type("x" * 4_000 + "\n")
        chat.wait_for("do not fit the context")
        chat.type("short\n")
        chat.wait_for("TTFT")
        assert "xxx" not in slow.last_prompt()


def test_lines_of_a_pipe_are_turns_and_answers_come_plain(smol: RunningServer) -> None:
    """On a private server: the answers are those of a served one, and nothing else is on standard output."""
    questions = ["What is the capital of France?", "And of Italy?"]
    done = paceline(
        "chat", "smollm2-135m", "--temperature", "0", "--max-tokens", "12", "--kv-memory", "64MiB",
        text="\n".join(["", *questions, "/exit", "never asked"]),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    messages: list[dict[str, str]] = []
    expected = ""
    for question in questions:
        messages.append({"role": "user", "content": question})
        body = {"model": "smollm2-135m", "messages": messages, "temperature": 0, "max_tokens": 12}
        answer = smol.post("chat/completions", body).json()["choices"][0]["message"]["content"]
        messages.append({"role": "assistant", "content": answer})
        expected += answer + "\n"
    assert done.stdout == expected


def test_a_question_that_fails_does_not_end_a_pipe(scripted: RunningServer) -> None:
    done = paceline("chat", "--url", scripted.url, "--max-tokens", "3", text="x" * 5_000 + "\nshort\n")
    assert done.returncode == 1
    assert done.stdout == " five, six\n"
    assert done.stderr.startswith("paceline: ")
    assert "4096" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--url", "http://127.0.0.1:9"), "refused"),
        (("--url", "http://127.0.0.1:9", "--kv-memory", "1GiB"), "MODEL comes first"),
        (("m", "--url", "http://127.0.0.1:9", "--kv-memory", "1GiB"), "--kv-memory"),
        (("./none.gguf",), "nothing is there"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = paceline("chat", *arguments, text="hello\n")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_what_a_model_writes_can_not_drive_the_terminal() -> None:
    assert "a\x1b[2Jb\x07\x9b\n\tc".translate(CONTROLS) == "a\ufffd[2Jb\ufffd\ufffd\n\tc"
