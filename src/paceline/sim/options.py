"""The flags of `paceline simulate`, and the scenario they stand for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from paceline.bench.options import parse_seconds
from paceline.bench.replay import read_trace
from paceline.bench.result import Targets
from paceline.config import check_option, parse_bytes, parse_count
from paceline.errors import ConfigError
from paceline.sim.costs_option import Costs, parse_costs
from paceline.sim.handoff import Link
from paceline.sim.policies import MAX_TOKENS, Order, Policy, PolicyKind
from paceline.sim.router import RouterKind
from paceline.sim.scenario import MAX_REPLICAS, Scenario
from paceline.sim.speculation_option import NO_DRAFTS, parse_speculation, told_speculation
from paceline.workload.item import WorkItem
from paceline.workload.scaling import Scaling
from paceline.workload.specs import parse_arrivals, parse_length_pair, parse_prefix, parse_sessions
from paceline.workload.workload import Workload

DEFAULT_REQUESTS = 1000
DEFAULT_POOL_TOKENS = DEFAULT_CONTEXT = 2**20
EXACT = "exact"
LINEAR = "linear"
MAX_LINK_BYTES_PER_S = 10**15


@dataclass(frozen=True, slots=True)
class Options:
    """The flags; the annotations are what the command line shows."""

    workload: Annotated[str, typer.Option(help="INPUT/OUTPUT lengths such as 256/64, or a name.")] = "256/64"
    arrivals: Annotated[str, typer.Option(help="poisson:rate=4, closed:concurrency=8, …")] = "poisson:rate=4"
    prefix: Annotated[str, typer.Option(help="What prompts share: none, system:tokens=512, …")] = "none"
    sessions: Annotated[str, typer.Option(help="none, or fixed:turns=4,think=2, …")] = "none"
    trace: Annotated[Path | None, typer.Option(help="Instead: of Azure, BurstGPT, Mooncake, or our own JSONL.")] = None
    speed: Annotated[float, typer.Option(help="Of a trace: times as fast as recorded.")] = 1.0
    shrink: Annotated[float, typer.Option(help="Of a trace: lengths are divided by this.")] = 1.0
    requests: Annotated[int | None, typer.Option(min=1, help="How many are sent. Default: 1000, a whole trace.")] = None
    seconds: Annotated[str | None, typer.Option(help="Or: for how long they are sent.")] = None
    warmup: Annotated[str, typer.Option(help="Not counted at the start.")] = "0s"
    policy: Annotated[PolicyKind, typer.Option(help="How a replica schedules.")] = PolicyKind.CHUNKED
    batch: Annotated[str, typer.Option(help="Most sequences in one step.")] = "64"
    chunk: Annotated[str, typer.Option(help="Most tokens in one step, where prompts are cut.")] = "512"
    order: Annotated[Order, typer.Option(help="Of prefill chunks.")] = Order.SHORTEST
    pool: Annotated[str | None, typer.Option(help="Tokens of the KV pool. Default: what fits, or 1M.")] = None
    block_size: Annotated[str, typer.Option(help="Tokens in a KV block.")] = "16"
    max_tokens: Annotated[str, typer.Option(help="What clients ask for at least; exact: the drawn length.")] = EXACT
    costs: Annotated[
        str | None,
        typer.Option(help="linear, HARDWARE,MODEL such as h100,llama-2-7b, or fitted:FILE. Default: linear."),
    ] = None
    replicas: Annotated[str, typer.Option(help="Servers behind the router.")] = "1"
    router: Annotated[RouterKind, typer.Option(help="Who gets a request.")] = RouterKind.LEAST_LOADED
    prefill_replicas: Annotated[str, typer.Option(help="More servers, which only prefill; the others decode.")] = "0"
    transfer: Annotated[
        str | None, typer.Option(help="KV a prefill replica sends in a second: 50GB. Default: the hardware's link.")
    ] = None
    speculation: Annotated[
        str | None, typer.Option(help="draft=K,alpha=A,cost=C: drafts a step, chance to keep one, cost of one.")
    ] = None
    ttft: Annotated[str | None, typer.Option(help="Target of the time to first token, such as 300ms.")] = None
    itl: Annotated[str | None, typer.Option(help="Target of a request's mean gap between tokens.")] = None
    e2e: Annotated[str | None, typer.Option(help="Target of a request's whole time.")] = None
    seed: Annotated[int, typer.Option(help="Of lengths, arrivals and prompts.")] = 0
    out: Annotated[Path, typer.Option(help="Result file; the report lies beside it.")] = Path("simulate.jsonl")

    @property
    def targets(self) -> Targets:
        """The latency targets."""
        return Targets(
            ttft_s=None if self.ttft is None else parse_seconds("--ttft", self.ttft),
            itl_s=None if self.itl is None else parse_seconds("--itl", self.itl),
            e2e_s=None if self.e2e is None else parse_seconds("--e2e", self.e2e),
        )

    def scenario(self) -> Scenario:
        """What the flags stand for. Raises ConfigError."""
        costs = parse_costs(self.costs or LINEAR)
        num_replicas = parse_count("--replicas", self.replicas)
        check_option("--replicas", num_replicas, 1, MAX_REPLICAS)
        max_tokens = None if self.max_tokens == EXACT else parse_count("--max-tokens", self.max_tokens)
        check_option("--max-tokens", max_tokens, 1, MAX_TOKENS)
        num_requests = self.requests
        if num_requests is None and self.seconds is None and self.trace is None:
            num_requests = DEFAULT_REQUESTS
        return Scenario(
            workload=self._workload(),
            policy=Policy(
                kind=self.policy,
                batch=parse_count("--batch", self.batch),
                chunk=parse_count("--chunk", self.chunk),
                order=self.order,
                pool_tokens=parse_count("--pool", self.pool) if self.pool else costs.pool_tokens or DEFAULT_POOL_TOKENS,
                block_size=parse_count("--block-size", self.block_size),
                max_context=costs.max_context or DEFAULT_CONTEXT,
            ),
            step_time=costs.step_time,
            trace=self._trace(),
            num_requests=num_requests,
            duration_s=None if self.seconds is None else parse_seconds("--seconds", self.seconds),
            warmup_s=parse_seconds("--warmup", self.warmup, least=0),
            max_tokens=max_tokens,
            num_replicas=num_replicas,
            router=self.router,
            num_prefill=parse_count("--prefill-replicas", self.prefill_replicas),
            link=self._link(costs),
            speculation=NO_DRAFTS if self.speculation is None else parse_speculation(self.speculation),
            targets=self.targets,
            label=self.policy,
        )

    def about(self, scenario: Scenario) -> dict[str, dict[str, str]]:
        """What a report says of the fleet and the workload; `scenario`: what the flags stand for."""
        policy = scenario.policy
        return {
            "server": {
                "policy": f"{policy.kind}, batch {policy.batch}, chunk {policy.chunk}, {policy.order} first",
                "pool": f"{policy.pool_tokens} tokens in blocks of {policy.block_size}",
                "costs": self.costs or LINEAR,
                "fleet": f"{scenario.num_replicas}, {scenario.router}",
                "speculation": told_speculation(scenario.speculation),
                "prefill": f"{scenario.num_prefill} more" if scenario.link else "where decoded",
            },
            "workload": {
                "seed": str(self.seed),
                **self._about_items(),
                "max tokens": self.max_tokens,
            },
        }

    def _about_items(self) -> dict[str, str]:
        if self.trace is not None:
            return {"trace": self.trace.name, "speed": f"{self.speed:g}", "shrink": f"{self.shrink:g}"}
        return {
            "lengths": self.workload,
            "arrivals": self.arrivals,
            "prefix": self.prefix,
            "sessions": self.sessions,
        }

    def _link(self, costs: Costs) -> Link | None:
        """Between the pools, when there are two."""
        num_prefill = parse_count("--prefill-replicas", self.prefill_replicas)
        check_option("--prefill-replicas", num_prefill, 0, MAX_REPLICAS)
        if num_prefill == 0:
            return None
        if self.policy is PolicyKind.STATIC:
            raise ConfigError("--prefill-replicas: static batching has no KV blocks to send; choose another --policy")
        given = None if self.transfer is None else parse_bytes("--transfer", self.transfer)
        check_option("--transfer", given, 1, MAX_LINK_BYTES_PER_S)
        bytes_per_s = costs.link_bytes_per_s if given is None else given
        if costs.kv_bytes_per_token is None or bytes_per_s is None:
            raise ConfigError(
                "--prefill-replicas needs the bytes of a token's KV and of a link: --costs HARDWARE,MODEL, and "
                "--transfer where the hardware's link is not known"
            )
        return Link(bytes_per_s, costs.kv_bytes_per_token)

    def _trace(self) -> tuple[WorkItem, ...]:
        """The items of a trace; none without one."""
        if self.trace is None:
            return ()
        scaling = Scaling(input_divisor=self.shrink, output_divisor=self.shrink, speed=self.speed)
        return tuple(scaling.items(read_trace(self.trace, self.requests)))

    def _workload(self) -> Workload:
        return Workload(
            parse_length_pair(self.workload, "--workload"),
            parse_arrivals(self.arrivals),
            parse_prefix(self.prefix),
            parse_sessions(self.sessions),
            self.seed,
        )
