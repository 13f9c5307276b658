"""`bench compare` and `bench prefix`: the same loads again and again in turn, and ratios of neighbours in time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.bench.endpoint import BenchError
from paceline.bench.experiment import Held, Settings, Spot, hold, letter, result_of
from paceline.bench.load import Caller
from paceline.bench.measures import Spread, Summary
from paceline.bench.pairs import paired_ratio
from paceline.bench.result import Experiment, PairedRatio, Result
from paceline.workload.prefixes import SharedShare


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the things that take turns. `baseline`: the name of the one it is divided by; None: it is a baseline.
    Variants with the same `spot.repetition` are asked the same prompts, so they must be different servers.
    """

    name: str
    caller: Caller
    settings: Settings
    spot: Spot
    baseline: str | None


def middle(spread: Spread | None) -> float:
    """Median, 0 where nothing was measured."""
    return spread.p50 if spread else 0.0


def tail(spread: Spread | None) -> float:
    """p99, 0 where nothing was measured."""
    return spread.p99 if spread else 0.0


# More is better for throughput, less for the latencies.
COMPARED: tuple[tuple[str, Callable[[Summary], float]], ...] = (
    ("output tokens/s", lambda summary: summary.output_tokens_per_s),
    ("TTFT p50", lambda summary: middle(summary.ttft_s)),
    ("TTFT p99", lambda summary: tail(summary.ttft_s)),
    ("ITL p50", lambda summary: middle(summary.itl_s)),
    ("ITL p99", lambda summary: tail(summary.itl_s)),
)


async def measure_compare(
    callers: Sequence[Caller], settings: Settings, concurrencies: Sequence[int], num_rounds: int
) -> Result:
    """Servers in turn, at each concurrency; each is divided by the first server at the same concurrency."""
    names = server_names(callers)
    variants = [
        Variant(
            f"{name}concurrency {concurrency}",
            caller,
            settings,
            Spot("", concurrency=concurrency, repetition=number * len(callers) + copy),
            None if caller is callers[0] else f"{names[0]}concurrency {concurrency}",
        )
        for number, concurrency in enumerate(concurrencies)
        for name, caller, copy in zip(names, callers, copies(callers), strict=True)
    ]
    return await measure_in_turn(Experiment.COMPARE, settings, callers, variants, num_rounds)


async def measure_prefix(
    callers: Sequence[Caller], settings: Settings, concurrency: int, shares: Sequence[float], num_rounds: int
) -> Result:
    """Shares of a prompt that all requests have in common. One server: each share is divided by the first (0: the
    control). Several: each server by the first one at the same share.
    """
    names = server_names(callers)
    variants = []
    for number, share in enumerate(shares):
        workload = replace(settings.workload, prefix=SharedShare(share))
        for name, caller, copy in zip(names, callers, copies(callers), strict=True):
            if len(callers) == 1:
                baseline = None if share == shares[0] else f"{name}{shares[0]:.0%} shared"
            else:
                baseline = None if caller is callers[0] else f"{names[0]}{share:.0%} shared"
            repetition = number * len(callers) + copy
            spot = Spot("", concurrency=concurrency, shared_share=share, repetition=repetition)
            variants.append(
                Variant(f"{name}{share:.0%} shared", caller, replace(settings, workload=workload), spot, baseline)
            )
    return await measure_in_turn(Experiment.PREFIX, settings, callers, variants, num_rounds)


async def measure_in_turn(
    experiment: Experiment,
    settings: Settings,
    callers: Sequence[Caller],
    variants: Sequence[Variant],
    num_rounds: int,
) -> Result:
    """Every variant once a round, every other round backwards, with fresh prompts each round."""
    if num_rounds < 1:
        raise BenchError(f"--rounds must be at least 1, got {num_rounds}")
    found: dict[str, list[Held]] = {variant.name: [] for variant in variants}
    in_order: list[Held] = []
    for number in range(num_rounds):
        for variant in variants if number % 2 == 0 else reversed(variants):
            repetition = number * len(variants) + variant.spot.repetition
            spot = replace(variant.spot, label=f"{variant.name}, round {number + 1}", repetition=repetition)
            held = await hold(variant.caller, variant.settings, spot)
            found[variant.name].append(held)
            in_order.append(held)
    result = result_of(experiment, settings, callers, in_order)
    bases = {variant.name: variant.baseline for variant in variants if variant.baseline is not None}
    ratios = [ratio for name, base in bases.items() for ratio in ratios_of(name, found[name], base, found[base])]
    return replace(result, header=replace(result.header, ratios=tuple(ratios)))


def ratios_of(label: str, points: Sequence[Held], baseline: str, base_points: Sequence[Held]) -> list[PairedRatio]:
    """Each compared measure, round by round."""
    ratios = (
        paired_ratio(
            measure,
            label,
            baseline,
            [value_of(held.summary) for held in points],
            [value_of(held.summary) for held in base_points],
        )
        for measure, value_of in COMPARED
    )
    return [ratio for ratio in ratios if ratio is not None]


def copies(callers: Sequence[Caller]) -> list[int]:
    """How often each server came before in the list: one that is measured against itself gets other prompts."""
    urls = [caller.endpoint.url for caller in callers]
    return [urls[:number].count(url) for number, url in enumerate(urls)]


def server_names(callers: Sequence[Caller]) -> list[str]:
    """A letter for each, as in the result's facts about servers; nothing for a lone one."""
    return [""] if len(callers) == 1 else [f"{letter(number)}, " for number in range(len(callers))]
