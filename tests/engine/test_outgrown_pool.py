"""B075 through the real engine: sessions whose answers outgrow the pool come to an end, as the simulator says."""

import logging
from array import array
from collections import Counter

import pytest

from paceline.bench.record import Outcome
from paceline.config import EngineConfig
from paceline.core.kv import KvManager
from paceline.core.policy import LearnedReserve
from paceline.core.request import FinishReason, Request, RequestId, SamplingParams, StopRule
from paceline.core.scheduler import Scheduler, SchedulerLimits
from paceline.costs.step import LinearLaw
from paceline.engine.contract import EngineLimits
from paceline.engine.engine import Engine
from paceline.engine.grammars import GrammarQueue
from paceline.exec.grammar import GrammarCompiler
from paceline.exec.scripted import ScriptedExecutor
from paceline.sim.policies import Policy
from paceline.sim.scenario import Scenario, Simulated, simulate
from paceline.workload.arrivals import Constant
from paceline.workload.distributions import Fixed
from paceline.workload.item import Session, WorkItem, sessions
from paceline.workload.lengths import Lengths
from paceline.workload.segments import answered_index
from paceline.workload.sessions import Sessions
from paceline.workload.workload import Workload

# The case is 64 sessions of 4,000 tokens an answer and room for three; a fiftieth of that, since the scripted model
# reads every position of every context again in each step, to see that it is still there.
PROMPT, ANSWER, BLOCK_SIZE, NUM_ROWS, CHUNK = 4, 80, 4, 64, 64
POOL_TOKENS = 3 * (PROMPT + ANSWER)
NUM_SESSIONS, NUM_TURNS = 64, 2
NUM_REQUESTS = NUM_SESSIONS * NUM_TURNS
VOCABULARY = 1_000
ONE_SECOND_A_STEP = LinearLaw(1.0, 0.0, 0.0)
# A session a step: twenty times what three rows at once can answer.
WORKLOAD = Workload(
    Lengths(Fixed(PROMPT), Fixed(ANSWER)), Constant(1.0), sessions=Sessions(Fixed(NUM_TURNS), replays_history=True)
)


def next_token(tokens: "array[int]", sampling: SamplingParams) -> int:
    return token_at(sampling.seed, len(tokens))


def token_at(index: int, position: int) -> int:
    return (index * 7919 + position * 104_729) % VOCABULARY


def scripted_engine() -> Engine:
    """The real engine and scheduler; only the model is a script, which refuses to read another context's KV."""
    kv = KvManager(POOL_TOKENS // BLOCK_SIZE, BLOCK_SIZE)
    scheduler = Scheduler(SchedulerLimits(NUM_ROWS, CHUNK, 4_096), kv, LearnedReserve(BLOCK_SIZE))
    limits = EngineLimits(scheduler.effective_context, kv.pool_tokens, BLOCK_SIZE, NUM_ROWS, VOCABULARY, "scripted", 1)
    grammars = GrammarQueue(GrammarCompiler(VOCABULARY))
    return Engine(scheduler, ScriptedExecutor(BLOCK_SIZE, next_token), grammars, limits, EngineConfig())


class Clients:
    """The sessions: a turn is sent when the one before it was answered, with that answer in its prompt."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[int, array[int]] = {}
        self.reasons: Counter[FinishReason] = Counter()
        self._turns: dict[int, tuple[Session, int]] = {}

    def send(self, session: Session, turn: int, now_s: float) -> None:
        item = session[turn]
        self._turns[item.index] = session, turn
        self.answers[item.index] = array("i")
        sampling = SamplingParams(seed=item.index)
        request = Request(RequestId(item.index), self._prompt(item), StopRule(ANSWER), sampling, arrival_s=now_s)
        self.engine.submit(request)

    def _prompt(self, item: WorkItem) -> "array[int]":
        """No two sessions begin with the same token; an answer is replayed as it was."""
        tokens = array("i")
        for segment in item.prompt:
            answered = answered_index(segment)
            if answered is None:
                tokens.extend([segment.segment_id % VOCABULARY, *range(1, segment.num_tokens)])
            else:
                tokens.extend(self.answers[answered])
        return tokens

    def run(self, waiting: list[Session]) -> int:
        """Steps until all is answered; a session's arrival_s counts steps."""
        num_steps, next_turns = 0, list[tuple[Session, int]]()
        while waiting or self.engine.has_work() or next_turns:
            while waiting and (waiting[0][0].arrival_s or 0.0) <= num_steps:
                self.send(waiting.pop(0), 0, float(num_steps))
            for session, turn in next_turns:
                self.send(session, turn, float(num_steps))
            next_turns = []
            for output in self.engine.step():
                self.answers[output.request_id].extend(token.token_id for token in output.tokens)
                if output.finish_reason is not None:
                    self.reasons[output.finish_reason] += 1
                    session, turn = self._turns[output.request_id]
                    next_turns += [(session, turn + 1)] if turn + 1 < len(session) else []
            num_steps += 1
        return num_steps


def simulated() -> Simulated:
    policy = Policy(batch=NUM_ROWS, chunk=CHUNK, pool_tokens=POOL_TOKENS, block_size=BLOCK_SIZE)
    return simulate(Scenario(WORKLOAD, policy, ONE_SECOND_A_STEP, num_requests=NUM_REQUESTS))


def test_b075_the_real_engine_answers_everything_in_as_many_steps_as_the_simulator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    clients = Clients(scripted_engine())
    num_steps = clients.run(list(sessions(WORKLOAD.items(NUM_REQUESTS))))
    counters = clients.engine.gauges().counters
    assert clients.reasons == {FinishReason.LENGTH: NUM_REQUESTS}
    for index, answer in clients.answers.items():
        start = PROMPT + index % NUM_TURNS * (PROMPT + ANSWER)
        assert list(answer) == [token_at(index, position) for position in range(start, start + ANSWER)]
    assert 0 < counters.num_preemptions <= 5 * NUM_REQUESTS
    assert num_steps <= sum(item.prompt_tokens + item.output_tokens for item in WORKLOAD.items(NUM_REQUESTS))
    assert len(caplog.records) < 10, "nothing is logged for a preemption"
    found = simulated()
    assert {record.outcome for record in found.records} == {Outcome.COMPLETED}
    assert (found.num_steps, found.num_preemptions) == (counters.num_steps, counters.num_preemptions)
