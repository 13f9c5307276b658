"""Speculation in the simulator: tokens a pass by the formula, the same in every batch, paying where the plan says."""

from dataclasses import replace
from itertools import pairwise

import pytest

from paceline.bench.measures import Window, gaps_s, summarize
from paceline.bench.record import RequestRecord
from paceline.core.loop import StepLoop
from paceline.core.request import Request, RequestId, SamplingParams, StopRule, token_array
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.hardware import Hardware
from paceline.costs.known_models import find_model
from paceline.costs.speculation import Speculation, last_paying_batch
from paceline.costs.step import LinearLaw, StepTime, StepWork
from paceline.errors import ConfigError
from paceline.sim.executor import VirtualClock
from paceline.sim.handoff import Link
from paceline.sim.policies import Order, Policy, PolicyKind, make_scheduler
from paceline.sim.scenario import Scenario, simulate
from paceline.sim.speculation import SpeculatingExecutor, drawn
from paceline.sim.speculation_option import NO_DRAFTS, parse_speculation
from paceline.sim.sweeps import parse_sweep
from paceline.workload.arrivals import ClosedLoop, Poisson
from paceline.workload.distributions import Fixed, Geometric, Uniform
from paceline.workload.lengths import Lengths
from paceline.workload.workload import Workload

DRAFTING = Speculation(0.7, 4, 0.1)
CHAT = Workload(Lengths(Uniform(16, 80), Geometric(40)), Poisson(6.0))


def run(policy: Policy, speculation: Speculation = DRAFTING, **more: object) -> tuple[RequestRecord, ...]:
    scenario = Scenario(CHAT, policy, LinearLaw(), num_requests=150, speculation=speculation)
    return simulate(replace(scenario, **more)).records


@pytest.mark.parametrize(
    ("acceptance", "num_drafts"),
    [(0.941, 4), (0.889, 4), (0.829, 4), (0.721, 4), (0.7, 3), (0.5, 1), (0.0, 3), (1.0, 2)],
)
def test_tokens_of_a_pass_are_what_the_formula_says(acceptance: float, num_drafts: int) -> None:
    speculation = Speculation(acceptance, num_drafts, 0.1)
    workload = Workload(Lengths(Fixed(16), Fixed(2_000)), ClosedLoop(8))
    records = simulate(
        Scenario(workload, Policy(batch=8), LinearLaw(), num_requests=8, speculation=speculation)
    ).records
    # The first token is the prompt's; the last pass of an answer is cut short by its end.
    passes = [tokens for record in records for tokens in record.event_tokens[1:-1]]
    assert sum(passes) / len(passes) == pytest.approx(speculation.tokens_per_pass, rel=0.02)
    assert {record.output_tokens for record in records} == {2_000}


def test_no_drafts_and_drafts_never_kept_bring_the_same_tokens_at_other_times() -> None:
    plain, refused = run(Policy(), NO_DRAFTS), run(Policy(), Speculation(0.0, 4, 0.1))
    lengths = [{record.index: record.event_tokens for record in records} for records in (plain, refused)]
    assert lengths[0] == lengths[1]
    assert max(record.ended_s for record in refused) > max(record.ended_s for record in plain)


@pytest.mark.parametrize("kind", PolicyKind)
def test_a_request_keeps_the_same_drafts_in_every_batch(kind: PolicyKind) -> None:
    kept = {
        batch: {record.index: record.event_tokens for record in run(Policy(kind, batch=batch, chunk=64))}
        for batch in (3, 24)
    }
    assert kept[3] == kept[24]
    assert len(set(kept[3].values())) > 100, "requests do not share their draws"


def test_the_same_drafts_are_kept_after_a_preemption_and_behind_a_hand_over() -> None:
    crowd, tight = replace(CHAT, arrivals=Poisson(60.0)), Policy(batch=16, pool_tokens=512)
    found = simulate(Scenario(crowd, tight, LinearLaw(), num_requests=150, max_tokens=300, speculation=DRAFTING))
    assert found.num_preemptions > 0
    roomy = {record.index: record for record in run(Policy(batch=16), workload=crowd, max_tokens=300)}
    handed_over = run(Policy(batch=16), workload=crowd, max_tokens=300, num_prefill=1, link=Link(1e12, 1e3))
    for records in (found.records, handed_over):
        assert {record.index: record.output_tokens for record in records} == {
            index: record.output_tokens for index, record in roomy.items()
        }
    num_events = [sum(len(record.event_tokens) for record in records) for records in (roomy.values(), found.records)]
    assert num_events[1] == pytest.approx(num_events[0], rel=0.03), "a resumed row starts with one token"


def test_the_same_seed_gives_the_same_records_and_another_seed_others() -> None:
    assert run(Policy()) == run(Policy())
    assert run(Policy()) != run(Policy(), workload=replace(CHAT, seed=1))


def test_draws_are_uniform_and_neighbours_unrelated() -> None:
    draws = [drawn(12_345, position) for position in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(0.5, abs=0.01)
    both = sum(a < 0.5 and b < 0.5 for a, b in pairwise(draws)) / len(draws)
    assert both == pytest.approx(0.25, abs=0.015)


@pytest.mark.parametrize("order", Order)
def test_rows_that_owe_kept_drafts_decode_first_however_many_prompts_wait(order: Order) -> None:
    """Steps of one second, prompts that take all of each step's budget for minutes: every gap is one step."""
    workload = Workload(Lengths(Fixed(400), Fixed(100)), ClosedLoop(12))
    policy = Policy(batch=12, chunk=64, order=order)
    steps = Scenario(workload, policy, LinearLaw(1.0, 0.0, 0.0), num_requests=24, speculation=Speculation(0.8, 4, 0.0))
    records = simulate(steps).records
    assert {gap for record in records for gap in gaps_s(record)} == {1.0}


def test_the_verify_step_and_its_drafts_are_what_the_cost_model_is_told() -> None:
    seen: list[StepWork] = []

    class Watching:
        def step_s(self, work: StepWork) -> float:
            seen.append(work)
            return 1.0

    clock = VirtualClock()
    scheduler = make_scheduler(Policy(batch=2, chunk=512))
    loop = StepLoop(scheduler, SpeculatingExecutor(2, Watching(), clock, lambda _: 8, Speculation(1.0, 2, 0.25)))
    stop = StopRule(8)
    scheduler.submit(Request(RequestId(0), token_array([5] * 10), stop, SamplingParams(temperature=0.0, seed=1)))
    outputs = [loop.step() for _ in range(4)]
    assert [len(output.tokens) for [output] in outputs] == [1, 3, 3, 1]
    assert seen[0] == StepWork(10, 0, 1, 10, 55, 1)
    # Contexts of 11, 14 and 17 known tokens; each verify step is followed by its plain twin, for the drafts' cost.
    assert seen[1::2] == [StepWork(0, 1, 0, end, 3 * end, 1, 2) for end in (11, 14, 17)]
    assert seen[2::2] == [StepWork(0, 1, 0, end, end, 1) for end in (11, 14, 17)]
    assert clock.now_s == pytest.approx(1.0 + 3 * (1.0 + 2 * 0.25))


def tokens_per_s(batch: int, step_time: StepTime, speculation: Speculation) -> float:
    """A batch that stays full, prompts of one block: nearly all of it is decoding."""
    workload = Workload(Lengths(Fixed(16), Uniform(200, 400)), ClosedLoop(batch))
    scenario = Scenario(
        workload, Policy(batch=batch, chunk=2**20), step_time, num_requests=4 * batch, speculation=speculation
    )
    records = simulate(scenario).records
    window = Window(
        sorted(record.ended_s for record in records)[batch], sorted(record.ended_s for record in records)[-batch]
    )
    return summarize(records, window).output_tokens_per_s


def test_drafting_stops_paying_at_the_batch_that_the_plan_names() -> None:
    """A card with a ridge of 20 rows, so that the batches are small; contexts vary here, so 25 % to either side."""
    card = DatasheetEstimator(find_model("llama-3-8b"), Hardware("card", 40e12, 2e12, 80 * 10**9))
    speculation = Speculation(0.7, 3, 0.1)
    last = last_paying_batch(speculation, card, 16 + 150)
    assert last is not None
    ratios = {
        batch: tokens_per_s(batch, card, speculation) / tokens_per_s(batch, card, NO_DRAFTS)
        for batch in (1, round(0.75 * last), round(1.25 * last))
    }
    alone, before, beyond = ratios.values()
    assert alone == pytest.approx(speculation.speed_up, rel=0.04)
    assert alone > before > 1.0 > beyond


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("draft=4,alpha=0.7", "cost is missing"),
        ("draft=4,alpha=1.7,cost=0.1", "acceptance rate must be from 0 to 1, got 1.7"),
        ("draft=0,alpha=0.7,cost=0.1", "draft must be a whole number from 1 to 16, got 0"),
        ("draft=2.5,alpha=0.7,cost=0.1", "draft must be a whole number from 1 to 16, got 2.5"),
        ("draft=4,alpha=x,cost=0.1", "alpha must be a number, got 'x'"),
        ("draft=nan,alpha=0.7,cost=0.1", "draft must be a whole number from 1 to 16, got nan"),
        ("drafts=4", "expected draft=K,alpha=A,cost=C"),
        ("draft=4,draft=5,alpha=0.7,cost=0.1", "expected draft=K,alpha=A,cost=C"),
    ],
)
def test_a_mistake_in_the_option_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match="--speculation") as found:
        parse_speculation(text)
    assert said in str(found.value)


def test_drafts_can_be_swept_where_they_are_described() -> None:
    plain = Scenario(CHAT, Policy(), LinearLaw())
    drafting = replace(plain, speculation=parse_speculation("draft=4, alpha=0.7, cost=0.1"))
    _, _, scenarios = parse_sweep("draft=0,2,8", drafting)
    assert [each.speculation.num_drafts for each in scenarios] == [0, 2, 8]
    with pytest.raises(ConfigError, match="give --speculation as well"):
        parse_sweep("draft=2", plain)
