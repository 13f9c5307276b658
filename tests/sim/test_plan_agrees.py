"""What the planner says in closed form beside what the engine's scheduler does with the same costs."""

from statistics import fmean

import pytest

from paceline.bench.measures import tpot_s, ttft_s
from paceline.costs.capacity import Replica
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.load import Load
from paceline.sim.costs_option import parse_costs
from paceline.sim.policies import Policy, PolicyKind
from paceline.sim.scenario import Scenario, simulate
from paceline.workload.arrivals import Poisson
from paceline.workload.distributions import Fixed
from paceline.workload.lengths import Lengths
from paceline.workload.workload import Workload


def both(costs_text: str, num_input: int, num_output: int, rate_per_s: float) -> tuple[float, float, float, float]:
    """(TPOT, TTFT) of the plan and of the simulation, means; prompts whole."""
    costs = parse_costs(costs_text)
    assert isinstance(costs.step_time, DatasheetEstimator)
    planned = Replica(costs.step_time, Load(rate_per_s, num_input, num_output)).at_rate(rate_per_s)
    assert planned is not None
    assert costs.pool_tokens is not None
    assert costs.max_context is not None
    policy = Policy(PolicyKind.CONTINUOUS, batch=512, pool_tokens=costs.pool_tokens, max_context=costs.max_context)
    workload = Workload(Lengths(Fixed(num_input), Fixed(num_output)), Poisson(rate_per_s))
    records = simulate(Scenario(workload, policy, costs.step_time, num_requests=200)).records
    paces, firsts = [tpot_s(record) for record in records], [ttft_s(record) for record in records]
    return (
        planned.tpot_s,
        planned.ttft_s,
        fmean(pace for pace in paces if pace is not None),
        fmean(first for first in firsts if first is not None),
    )


@pytest.mark.parametrize(
    ("costs", "num_input", "num_output", "rate_per_s"),
    [
        ("h100,llama-3-8b", 512, 128, 0.2),
        ("8xh100,llama-3-70b", 1000, 256, 0.2),
        ("4xh100,mixtral-8x7b", 512, 128, 0.05),
        ("h100,gemma-3-4b", 6000, 128, 0.2),
        ("t4,llama-3.2-1b", 800, 100, 0.1),
    ],
)
def test_at_light_load_they_agree(costs: str, num_input: int, num_output: int, rate_per_s: float) -> None:
    tpot, ttft, simulated_tpot, simulated_ttft = both(costs, num_input, num_output, rate_per_s)
    assert tpot == pytest.approx(simulated_tpot, rel=0.02)
    assert ttft == pytest.approx(simulated_ttft, rel=0.04)


def test_under_load_the_plan_is_on_the_safe_side_and_not_far_off() -> None:
    """It adds prefill and decode up; in a step that does both, the roofline takes the longer."""
    tpot, ttft, simulated_tpot, simulated_ttft = both("8xh100,llama-3-70b", 1000, 256, 10.0)
    assert simulated_tpot < tpot < 1.2 * simulated_tpot
    assert ttft == pytest.approx(simulated_ttft, rel=0.1)
