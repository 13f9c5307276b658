"""The options of `paceline plan`, and the question they make."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, pvariance
from typing import Annotated

import typer

from paceline.bench.options import parse_seconds
from paceline.config import parse_bytes
from paceline.costs.capacity import Replica
from paceline.costs.estimator import DEFAULT_EFFICIENCY, DatasheetEstimator
from paceline.costs.formats import kv_format, weight_format
from paceline.costs.hardware import Hardware, find_hardware
from paceline.costs.load import Load, Margins, Targets
from paceline.costs.memory import memory_fit
from paceline.costs.question import Question
from paceline.errors import ConfigError
from paceline.planning.machine import THIS_MACHINE, measure_this_machine
from paceline.planning.model import size_of
from paceline.sim.costs_option import read_fitted
from paceline.workload.distributions import whole_at
from paceline.workload.specs import parse_length_pair

RATE_SUFFIXES = {"": 1.0, "G": 1e9, "T": 1e12, "P": 1e15}
NUM_QUANTILES = 4096
DEFAULT_INPUT = 1024
DEFAULT_OUTPUT = 256
CARD_COUNTS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of a fleet's plan; the annotations are what the command line shows."""

    hardware: Annotated[str, typer.Option(help="A card such as H100, L4 or MI300X; this: this machine.")] = "H100"
    gpus: Annotated[int | None, typer.Option(min=1, help="Cards of a replica. Default: the fewest that hold it.")] = (
        None
    )
    rate: Annotated[float | None, typer.Option(help="Requests a second. Default: what one replica can take.")] = None
    input_: Annotated[int | None, typer.Option("--input", help="Tokens of a prompt, on average.  [default: 1024]")] = (
        None
    )
    output: Annotated[int | None, typer.Option(help="Tokens of an answer, on average.  [default: 256]")] = None
    workload: Annotated[
        str | None, typer.Option(help="Lengths instead: INPUT/OUTPUT such as lognormal:median=200,sigma=1/64.")
    ] = None
    ttft: Annotated[str | None, typer.Option(help="Target of the time to first token (p99), such as 1s.")] = None
    itl: Annotated[str | None, typer.Option(help="Target of the time between tokens, such as 30ms.")] = None
    price: Annotated[float | None, typer.Option(help="Of a card and hour.")] = None
    quantization: Annotated[
        str | None, typer.Option("--quantization", "-q", help="Format of weights: bf16, fp8, int8, int4, q4_k …")
    ] = None
    kv_cache_dtype: Annotated[str, typer.Option(help="Format of the KV cache: bf16, fp8, …")] = "bf16"
    efficiency: Annotated[
        float | None, typer.Option(help="Share of the figures reached. Default: 0.7; 1 where they are measured.")
    ] = None
    workspace: Annotated[float, typer.Option(help="Share of memory kept for activations.")] = 0.1
    utilization: Annotated[float, typer.Option(help="Most of its capacity a replica is planned for.")] = 0.8
    prefix_share: Annotated[float, typer.Option(help="Share of each prompt that the prefix cache holds.")] = 0.0
    sessions: Annotated[int | None, typer.Option(min=1, help="Sequences that must fit in memory at once.")] = None
    pools: Annotated[bool, typer.Option("--pools", help="Also prefill and decode on separate replicas.")] = False
    turns: Annotated[int, typer.Option(min=0, max=1000, help="Turns of a session: how TPOT drifts.")] = 0
    flops: Annotated[str | None, typer.Option(help="Arithmetic of a card instead, such as 989T.")] = None
    bandwidth: Annotated[str | None, typer.Option(help="Its memory bandwidth instead, such as 3.35TB/s.")] = None
    memory: Annotated[str | None, typer.Option(help="Its memory instead, such as 80GiB.")] = None
    fitted: Annotated[Path | None, typer.Option(help="What replay --fit wrote, in place of the datasheet.")] = None
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    html: Annotated[Path | None, typer.Option(help="File for a page with plots.")] = None

    def question(self, model: str) -> Question:
        """What is asked."""
        size, stored_as = size_of(model)
        weights = weight_format(self.quantization) if self.quantization else stored_as or weight_format("bf16")
        load, margins = self.load(), Margins(self.workspace, self.utilization)
        estimator = DatasheetEstimator(
            size,
            self.card(),
            weights=weights,
            kv=kv_format(self.kv_cache_dtype),
            efficiency=efficiency_of(self.hardware) if self.efficiency is None else self.efficiency,
        )
        self._check(estimator.hardware)
        num_cards = self.gpus or fewest_cards(estimator, load, margins)
        targets = Targets(
            ttft_s=None if self.ttft is None else parse_seconds("--ttft", self.ttft),
            tpot_s=None if self.itl is None else parse_seconds("--itl", self.itl),
        )
        law = None if self.fitted is None else read_fitted(self.fitted, f"--fitted {self.fitted}")
        replica = Replica(replace(estimator, num_cards=num_cards), load, margins, law)
        return Question(replica, targets, self.price)

    def card(self) -> Hardware:
        """The card of the catalogue, or this machine, with the figures that were given instead."""
        card = card_named(self.hardware, "; of another card give --flops, --bandwidth and --memory with the nearest")
        if self.flops is not None:
            card = replace(card, flops_per_s=parse_rate("--flops", self.flops), source=f"{card.source}; --flops")
        if self.bandwidth is not None:
            rate = parse_rate("--bandwidth", self.bandwidth)
            card = replace(card, bytes_per_s=rate, source=f"{card.source}; --bandwidth")
        if self.memory is not None:
            size = parse_bytes("--memory", self.memory)
            card = replace(card, memory_bytes=size, source=f"{card.source}; --memory")
        return card

    def load(self) -> Load:
        """The load; of a distribution of lengths its means and its spread."""
        num_input = DEFAULT_INPUT if self.input_ is None else self.input_
        num_output, variation = DEFAULT_OUTPUT if self.output is None else self.output, 0.0
        if self.workload is not None:
            if self.input_ is not None or self.output is not None:
                raise ConfigError(f"--workload {self.workload} has both lengths: leave out --input and --output")
            num_input, num_output, variation = moments(self.workload)
        return Load(self.rate, num_input, num_output, variation, self.prefix_share, self.sessions)

    def _check(self, card: Hardware) -> None:
        """Flags that would change nothing beside the others are refused."""
        if self.pools and self.rate is None:
            raise ConfigError("--pools needs --rate: how many replicas of each kind follows from the load")
        if self.pools and card.link_bytes_per_s is None:
            raise ConfigError(
                f"--pools: {card.name} has no link to others on which KV could cross; choose a --hardware"
            )
        if self.fitted is not None and self.efficiency is not None:
            raise ConfigError("--efficiency changes nothing with --fitted, whose steps were measured: leave one out")


def card_named(name: str, remedy: str = "") -> Hardware:
    """The card of the catalogue, or this machine, measured. Raises ConfigError, with what else can be done."""
    if name == THIS_MACHINE:
        return measure_this_machine()
    try:
        return find_hardware(name)
    except ConfigError as error:
        raise ConfigError(f"{error.message}, or {THIS_MACHINE}: this machine, measured{remedy}") from None


def efficiency_of(hardware: str) -> float:
    """The share of the figures to expect where the user has not said: all of what was measured."""
    return 1.0 if hardware == THIS_MACHINE else DEFAULT_EFFICIENCY


def moments(workload: str) -> tuple[int, int, float]:
    """Mean input, mean output, and the squared coefficient of variation of the input, over evenly spaced quantiles."""
    lengths = parse_length_pair(workload, "--workload")
    quantiles = [(index + 0.5) / NUM_QUANTILES for index in range(NUM_QUANTILES)]
    inputs = [whole_at(lengths.input, quantile) for quantile in quantiles]
    mean = fmean(inputs)
    num_output = fmean(whole_at(lengths.output, quantile) for quantile in quantiles)
    return max(1, round(mean)), max(1, round(num_output)), pvariance(inputs) / mean**2


def fewest_cards(estimator: DatasheetEstimator, load: Load, margins: Margins) -> int:
    """The fewest cards that hold the weights and what has to be held at once; all we look at where none do."""
    for num_cards in CARD_COUNTS:
        fit = memory_fit(replace(estimator, num_cards=num_cards), load, margins)
        if fit.num_sequences >= (load.num_sessions or 1):
            return num_cards
    return CARD_COUNTS[-1]


def parse_rate(option: str, text: str) -> float:
    """`989T`, `3.35TB/s`, `864GB/s`: operations or bytes a second."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([GTP]?)(?:B|FLOP)?(?:/s)?", text.strip())
    if match is None or float(match.group(1)) == 0.0:
        raise ConfigError(f"{option} must be a rate such as 989T or 3.35TB/s, got {text!r}")
    return float(match.group(1)) * RATE_SUFFIXES[match.group(2)]
