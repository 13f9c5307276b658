"""`paceline plan speculation`: when drafting pays, by the closed form, by the cost model, and by sampling."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from paceline.bench.options import command_line
from paceline.bench.report_figure import Figure, Json, axis, layout
from paceline.bench.report_page import Page, Table
from paceline.costs.bigram import Sampled, check_by_sampling, random_logits
from paceline.costs.estimator import DatasheetEstimator
from paceline.costs.formats import weight_format
from paceline.costs.speculation import MAX_DRAFTS, Speculation, best_speculation, last_paying_batch
from paceline.costs.units import sized
from paceline.errors import ConfigError
from paceline.planning.model import size_of
from paceline.planning.options import card_named, efficiency_of

ALPHAS = tuple(index / 20 for index in range(6, 20))
DRAFT_COSTS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
TEMPERATURES = (0.6, 1.0, 1.4, 1.8, 2.5)
VOCAB_SIZE = 32
SPREAD = 1.5
NUM_PASSES = 4_000


@dataclass(frozen=True, slots=True)
class SpeculationOptions:
    """Options of the command; the annotations are what the command line shows."""

    alpha: Annotated[float, typer.Option(help="Chance that a draft is kept.")] = 0.7
    cost: Annotated[float, typer.Option(help="A draft's pass as a share of the target's.")] = 0.1
    drafts: Annotated[int | None, typer.Option(min=1, help="Drafts a pass. Default: the best.")] = None
    model: Annotated[str, typer.Option(help="Target model, for the batch where it stops paying.")] = "llama-3-70b"
    hardware: Annotated[str, typer.Option(help="Card of the catalogue; this: this machine.")] = "H100"
    gpus: Annotated[int, typer.Option(min=1, help="Cards of a replica.")] = 8
    context: Annotated[int, typer.Option(min=1, help="Tokens of context of each sequence.")] = 1024
    quantization: Annotated[
        str | None, typer.Option("--quantization", "-q", help="Format of weights. Default: the file's, or bf16.")
    ] = None
    check: Annotated[bool, typer.Option(help="Draw on bigram models and compare.")] = True
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
    html: Annotated[Path | None, typer.Option(help="File for a page with the speed-up surface.")] = None


@dataclass(frozen=True, slots=True)
class SpeculationAnswer:
    """`last_batch`: the largest that gains; None where every batch does."""

    chosen: Speculation
    best: Speculation
    by_drafts: tuple[Speculation, ...]
    surface: tuple[tuple[Speculation, ...], ...]
    last_batch: int | None
    sampled: tuple[Sampled, ...]


def answer_speculation(options: SpeculationOptions) -> SpeculationAnswer:
    """Ask the closed form, the cost model, and the dice."""
    best = best_speculation(options.alpha, options.cost)
    chosen = best if options.drafts is None else Speculation(options.alpha, options.drafts, options.cost)
    size, stored_as = size_of(options.model)
    weights = weight_format(options.quantization) if options.quantization else stored_as or weight_format("bf16")
    estimator = DatasheetEstimator(
        size, card_named(options.hardware), options.gpus, weights, efficiency=efficiency_of(options.hardware)
    )
    check_fits(estimator, options.context)
    return SpeculationAnswer(
        chosen=chosen,
        best=best,
        by_drafts=tuple(Speculation(options.alpha, drafts, options.cost) for drafts in range(1, MAX_DRAFTS + 1)),
        surface=tuple(tuple(best_speculation(alpha, cost) for alpha in ALPHAS) for cost in DRAFT_COSTS),
        last_batch=last_paying_batch(chosen, estimator, options.context),
        sampled=sampled(max(1, chosen.num_drafts), options.seed) if options.check else (),
    )


def check_fits(estimator: DatasheetEstimator, context: int) -> None:
    """Raises ConfigError where not even one sequence could be served."""
    model = estimator.model
    if context > model.max_context:
        raise ConfigError(f"--context must be 1 to {model.max_context:,}, the context of {model.name}, got {context:,}")
    if estimator.memory_limit(context) < 1:
        raise ConfigError(
            f"{model.name} does not fit: weights {sized(estimator.weights_bytes)} and the KV of one sequence "
            f"{sized(estimator.kv_bytes(context))}, memory of {estimator.num_cards} × {estimator.hardware.name} "
            f"{sized(estimator.memory_bytes)}: give more --gpus or a smaller --quantization"
        )


def sampled(num_drafts: int, seed: int) -> tuple[Sampled, ...]:
    """The check by sampling, one bigram model, several draft temperatures."""
    random = Random(seed)
    logits = random_logits(VOCAB_SIZE, SPREAD, random.random)
    return tuple(check_by_sampling(logits, each, num_drafts, NUM_PASSES, random.random) for each in TEMPERATURES)


def reasons(found: SpeculationAnswer, options: SpeculationOptions) -> tuple[str, ...]:
    """The arithmetic, and where it ends."""
    chosen, alpha, drafts = found.chosen, options.alpha, found.chosen.num_drafts
    if drafts == 0:
        return (
            f"no number of drafts pays at α {alpha:g} and cost {options.cost:g}: one gives {1 + alpha:.3g} tokens for "
            f"{1 + options.cost:.3g} passes",
        )
    where = f"{options.model} on {options.gpus} × {options.hardware}, {options.context:,} tokens of context"
    passes = 1 + drafts * options.cost
    return (
        f"tokens a pass: (1 − {alpha:g}^{drafts + 1}) / (1 − {alpha:g}) = {chosen.tokens_per_pass:.4g}"
        if alpha < 1
        else f"tokens a pass: {drafts} + 1",
        f"speed-up: {chosen.tokens_per_pass:.4g} / (1 + {drafts} × {options.cost:g}) = "
        f"{chosen.tokens_per_pass:.4g} / {passes:.4g} = {chosen.speed_up:.4g}",
        f"{where}: {where_it_ends(found.last_batch, drafts)}",
    )


def where_it_ends(last_batch: int | None, num_drafts: int) -> str:
    """For which batches it pays, by the cost model."""
    verified = f"verifying {num_drafts + 1} tokens a row is more arithmetic than it saves"
    if last_batch is None:
        return "pays at every batch, since reading KV is what a step waits for"
    if last_batch == 0:
        return f"pays at no batch: even for one sequence {verified}; the speed-up above takes verification for free"
    return f"pays up to {last_batch:,} sequences; beyond, {verified}, and drafting should stop"


def draft_rows(found: SpeculationAnswer) -> list[tuple[str, ...]]:
    """One row a number of drafts."""
    return [
        (str(each.num_drafts), f"{each.tokens_per_pass:.3f}", f"{each.speed_up:.3f}×")
        for each in found.by_drafts[: max(10, found.best.num_drafts + 2)]
    ]


def surface_rows(found: SpeculationAnswer) -> list[tuple[str, ...]]:
    """Rows of draft cost, columns of α: best K and its speed-up."""
    return [
        (f"{row[0].draft_cost:g}", *(f"{each.num_drafts}: {each.speed_up:.2f}" for each in row[::2]))
        for row in found.surface
    ]


def sampled_rows(found: SpeculationAnswer) -> list[tuple[str, ...]]:
    """One row a draft temperature."""
    return [
        (
            f"{each.draft_temperature:g}",
            f"{each.acceptance:.3f}",
            f"{each.tokens_per_pass:.3f}",
            f"{each.expected_tokens_per_pass:.3f}",
        )
        for each in found.sampled
    ]


SURFACE_HEADS = ("draft cost \\ α", *(f"{alpha:g}" for alpha in ALPHAS[::2]))
DRAFT_HEADS = ("drafts", "tokens a pass", "speed-up")
SAMPLED_HEADS = ("draft temperature", "α seen", "tokens a pass, drawn", "closed form")


def speculation_json(found: SpeculationAnswer) -> Mapping[str, object]:
    """The answer as plain values."""
    return {
        "chosen": told(found.chosen),
        "best": told(found.best),
        "by_drafts": [told(each) for each in found.by_drafts],
        "surface": [told(each) for row in found.surface for each in row],
        "last_paying_batch": found.last_batch,
        "sampled": [asdict(each) for each in found.sampled],
    }


def told(each: Speculation) -> Mapping[str, object]:
    """A point with what follows from it."""
    return asdict(each) | {"tokens_per_pass": each.tokens_per_pass, "speed_up": each.speed_up}


def speculation_page(found: SpeculationAnswer, options: SpeculationOptions) -> Page:
    """The page: the surface as a plot, the tables below."""
    return Page(
        title="When speculation pays",
        summary=f"{found.chosen.num_drafts} drafts a pass at α {options.alpha:g}: {found.chosen.speed_up:.3g} times.",
        command=command_line(),
        warnings=(),
        facts={},
        table=Table(DRAFT_HEADS, tuple(draft_rows(found)), marked=found.best.num_drafts - 1),
        percentiles=Table(SAMPLED_HEADS, tuple(sampled_rows(found))),
        notes=reasons(found, options),
        figures=(surface_figure(found.surface),),
        data={"speculation": dict(speculation_json(found))},
        heading="Drafts a pass",
        details="Checked by sampling on a bigram model",
    )


def surface_figure(surface: Sequence[Sequence[Speculation]]) -> Figure:
    """The best speed-up over α and draft cost."""
    costs = [f"{row[0].draft_cost:g}" for row in surface]
    trace: Json = {
        "type": "heatmap",
        "x": list(ALPHAS),
        "y": costs,
        "z": [[each.speed_up for each in row] for row in surface],
        "text": [[str(each.num_drafts) for each in row] for row in surface],
        "texttemplate": "%{text}",
        "hovertemplate": "α %{x}, cost %{y}: %{z:.2f}×, K %{text}<extra></extra>",
        "colorscale": "Viridis",
        "colorbar": {"title": {"text": "speed-up"}},
    }
    caption = "Speed-up with the best number of drafts, which is written in each cell; 0: it does not pay."
    shown = layout(axis("acceptance rate α"), axis("draft cost", type="category"))
    return Figure("speculation-surface", "Speed-up over acceptance and draft cost", caption, (trace,), shown)
