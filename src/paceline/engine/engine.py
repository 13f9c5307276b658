"""The engine on the wall clock: a scheduler and an executor behind four verbs. Token ids only.

In process it is driven by `paceline.llm.LLM`, out of process by `engine.process`; both call `step` in a loop.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paceline.config import EngineConfig
from paceline.core.loop import StepLoop
from paceline.core.output import SequenceOutput
from paceline.core.plan import Executor
from paceline.core.request import FinishReason, Grammar, Request, RequestId
from paceline.core.scheduler import Scheduler
from paceline.core.spellings import Spellings
from paceline.engine.contract import EngineCounters, EngineGauges, EngineLimits
from paceline.engine.drain_rate import DrainRate
from paceline.engine.grammars import GrammarQueue
from paceline.engine.journal import InputScheduler, Journal, JournaledScheduler
from paceline.errors import OverloadedError, PacelineError

COMPILE_POLL_MS = 2


class Engine:
    """Requests in, outputs out, one step at a time. Not thread-safe: one caller drives it."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        grammars: GrammarQueue,
        limits: EngineLimits,
        config: EngineConfig,
        journal: Journal | None = None,
    ) -> None:
        self.limits = limits
        self.scheduler = scheduler
        self._inputs: InputScheduler = scheduler if journal is None else JournaledScheduler(scheduler, journal)
        self._loop = StepLoop(self._inputs, executor)
        self._grammars = grammars
        self._max_queued = config.max_num_queued_reqs
        self._shares_prefixes = config.enable_prefix_caching
        self._endings: list[SequenceOutput] = []
        self._drain_rate = DrainRate()
        self._num_submitted = 0
        self._refusals: list[tuple[RequestId, PacelineError]] = []

    def learn_spellings(self, spellings: Spellings) -> None:
        """How the model's tokens are spelled. Requests with a grammar wait until this is known."""
        self._grammars.learn_spellings(spellings)

    def compile_grammar(self, grammar: Grammar) -> None:
        """Compile now, so that a request with this grammar need not wait. Raises RequestError for a bad one."""
        self._grammars.compile_now(grammar)

    def submit(self, request: Request) -> None:
        """Queue a request; one with a new grammar enters the scheduler when that is compiled. Raises ContextLengthError
        when it can never be served, RequestError for a grammar known to be bad, OverloadedError when the queue is full.
        """
        num_waiting = self.scheduler.num_waiting + self._grammars.num_waiting
        num_done = self._num_submitted - num_waiting - self.scheduler.num_running
        now_s = time.monotonic()
        self._drain_rate.sample(now_s, num_done)
        if num_waiting >= self._max_queued:
            raise OverloadedError(
                f"{num_waiting} sequences are waiting, the limit is {self._max_queued} (--max-num-queued-reqs)",
                self._drain_rate.wait_s(now_s, num_done, num_waiting),
            )
        if not self._shares_prefixes:
            # A namespace of its own: whatever it leaves in the cache, nobody else finds.
            request = replace(request, namespace=request.namespace + b"/request:%d" % request.request_id)
        self.scheduler.check_feasible(request)
        grammar = request.sampling.grammar
        if grammar is None or not self._grammars.add(request, grammar):
            self._inputs.submit(request)
        self._num_submitted += request.num_sequences

    def cancel(self, request_id: RequestId) -> None:
        """End every sequence of the request; each gives a last output with CANCELLED. Unknown ids are ignored."""
        self._endings += self._inputs.cancel(request_id)
        request = self._grammars.remove(request_id)
        for choice_index in range(0 if request is None else request.num_sequences):
            self._endings.append(SequenceOutput(request_id, choice_index, (), (), FinishReason.CANCELLED, 0))

    def finish(self, request_id: RequestId, choice_index: int, num_tokens: int) -> None:
        """A stop string ended a choice after `num_tokens` tokens; what it sampled since is dropped. Unknown ids are
        ignored.
        """
        assert num_tokens >= 0, "a choice can't end before it began"
        self._inputs.finish(request_id, choice_index)

    def has_work(self) -> bool:
        """Whether `step` would compute or report something."""
        return bool(self._endings) or self.scheduler.has_work() or self._grammars.has_news()

    def idle_timeout_ms(self) -> int | None:
        """How long to sleep at most while there is no work: a grammar in compilation is looked at now and then."""
        return COMPILE_POLL_MS if self._grammars.num_waiting else None

    def take_refusals(self) -> list[tuple[RequestId, PacelineError]]:
        """Requests whose grammar turned out to be bad after they were queued, each once."""
        refusals, self._refusals = self._refusals, []
        return refusals

    def step(self) -> list[SequenceOutput]:
        """Run one step and return the news, endings of cancelled requests first; [] when idle."""
        for request, error in self._grammars.poll():
            if error is None:
                self._inputs.submit(request)
            else:
                self._refusals.append((request.request_id, error))
        endings, self._endings = self._endings, []
        return endings + self._loop.step(time.monotonic())

    def gauges(self) -> EngineGauges:
        """The current state, counted when asked."""
        pool = self.scheduler.kv.pool
        return EngineGauges(
            num_waiting=self.scheduler.num_waiting + self._grammars.num_waiting,
            num_following=self.scheduler.num_following,
            num_running=self.scheduler.num_running,
            num_blocks_in_use=pool.num_in_use,
            num_blocks_cached=pool.num_cached,
            num_blocks_total=pool.num_blocks,
            counters=self._counters(),
            num_compiling=self._grammars.num_waiting,
        )

    def _counters(self) -> EngineCounters:
        tally = self.scheduler.tally
        return EngineCounters(
            num_steps=self.scheduler.step_index,
            num_preemptions=self.scheduler.num_preemptions,
            num_prompt_tokens=tally.num_prompt_tokens,
            num_queried_tokens=tally.num_queried_tokens,
            num_cached_tokens=tally.num_cached_tokens,
            num_recomputed_tokens=tally.num_recomputed_tokens,
            num_generated_tokens=tally.num_generated_tokens,
            num_evicted_blocks=self.scheduler.kv.num_evictions,
            step_tokens=tally.step_tokens.state(),
        )


def build_engine(config: Mapping[str, Any]) -> Engine:
    """The engine process's factory: load the model that `config` (EngineConfig as JSON) names."""
    from paceline.engine.loading import load_engine

    return load_engine(EngineConfig.from_json_mapping(config))
