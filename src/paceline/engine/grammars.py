"""Requests that wait for their grammar to be compiled, beside the running streams.

Owns the compiling thread. It works on one grammar at a time and holds the GIL only at its edges, so no stream stalls.
A thread can't be stopped: one that passes the time limit is abandoned, its requests are refused and another starts;
while `MAX_ABANDONED` of them are still at it, nothing new is taken in. Nothing is compiled before the vocabulary is
known; requests wait for that too.
"""

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from paceline.core.request import Grammar, Request, RequestId
from paceline.core.spellings import Spellings
from paceline.errors import OverloadedError, PacelineError, RequestError
from paceline.exec.grammar import GrammarCompiler

log = logging.getLogger(__name__)

COMPILE_LIMIT_S = 10.0
MAX_ABANDONED = 2
RETRY_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A thread at work since `started_s`, on a grammar or (None) on the tokenizer that all of them need."""

    grammar: Grammar | None
    thread: threading.Thread
    started_s: float

    @property
    def has_ended(self) -> bool:
        """Whether it is done, well or not."""
        return not self.thread.is_alive()

    @property
    def is_late(self) -> bool:
        """Whether it has passed the time limit."""
        return time.monotonic() - self.started_s > COMPILE_LIMIT_S


class GrammarQueue:
    """Not thread-safe but for its own thread: the engine's one caller drives it."""

    def __init__(self, compiler: GrammarCompiler) -> None:
        self._compiler = compiler
        self._waiting: dict[RequestId, tuple[Request, Grammar]] = {}
        self._job: CompileJob | None = None
        self._abandoned: list[CompileJob] = []

    @property
    def num_waiting(self) -> int:
        """Sequences whose grammar is not compiled yet."""
        return sum(request.num_sequences for request, _ in self._waiting.values())

    def learn_spellings(self, spellings: Spellings) -> None:
        """The vocabulary is known: build what all grammars need."""
        if not self._compiler.is_ready:
            self._compiler.learn_spellings(spellings)
            self._start(None)

    def compile_now(self, grammar: Grammar) -> None:
        """Compile in this thread. Raises RequestError for a grammar that can't be."""
        self._compiler.matcher(grammar)

    def add(self, request: Request, grammar: Grammar) -> bool:
        """Whether the request must wait; `poll` gives it back then. Raises RequestError for a grammar known to be bad,
        OverloadedError while compilers are stuck.
        """
        if self._compiler.holds(grammar):
            self._compiler.matcher(grammar)
            return False
        self._abandoned = [job for job in self._abandoned if not job.has_ended]
        if len(self._abandoned) >= MAX_ABANDONED:
            raise OverloadedError("grammars are being compiled that take too long; try again later", RETRY_AFTER_S)
        self._waiting[request.request_id] = request, grammar
        self._start_next()
        return True

    def remove(self, request_id: RequestId) -> Request | None:
        """Take a waiting request out; its compilation goes on and is remembered."""
        return self._waiting.pop(request_id, (None, None))[0]

    def has_news(self) -> bool:
        """Whether `poll` would give something back or start something."""
        return self._job is not None and (self._job.has_ended or self._job.is_late)

    def poll(self) -> Iterator[tuple[Request, PacelineError | None]]:
        """Requests that wait no longer, each with what is wrong with its grammar, if anything is."""
        job = self._job
        if job is None or not self.has_news():
            return
        self._job = None
        error = self._failure(job)
        for request, grammar in list(self._waiting.values()):
            if grammar == job.grammar:
                del self._waiting[request.request_id]
                yield request, error if error is not None else self._refusal(grammar)
        self._start_next()

    def _failure(self, job: CompileJob) -> PacelineError | None:
        """Why the job brought no verdict on its grammar, if it brought none."""
        if not job.has_ended:
            self._abandoned.append(job)
            log.warning("a grammar is not compiled after %.0f s; giving it up", COMPILE_LIMIT_S)
            param = job.grammar.param if job.grammar is not None else None
            return RequestError(f"{param}: not compiled after {COMPILE_LIMIT_S:.0f} s; make it simpler", param)
        if job.grammar is not None and not self._compiler.holds(job.grammar):
            return PacelineError("the grammar could not be compiled; the fault is logged")
        return None

    def _refusal(self, grammar: Grammar) -> RequestError | None:
        try:
            self._compiler.matcher(grammar)
        except RequestError as error:
            return error
        return None

    def _start_next(self) -> None:
        if self._job is None and self._waiting and self._compiler.is_ready:
            self._start(next(iter(self._waiting.values()))[1])

    def _start(self, grammar: Grammar | None) -> None:
        thread = threading.Thread(target=self._work, args=(grammar,), name="grammar-compiler", daemon=True)
        self._job = CompileJob(grammar, thread, time.monotonic())
        thread.start()

    def _work(self, grammar: Grammar | None) -> None:
        """In the thread. What goes wrong with a grammar is the compiler's to remember; the rest is our fault."""
        try:
            if grammar is None:
                self._compiler.prepare()
            else:
                self._compiler.matcher(grammar)
        except RequestError:
            pass
        except Exception:
            log.exception("compiling a grammar failed")
