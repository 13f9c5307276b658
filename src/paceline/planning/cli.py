"""`paceline plan MODEL …` and `paceline plan speculation …`: both answer in about a second."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer
from rich.console import Console

from paceline.bench.options import with_fields
from paceline.costs.speculation import MAX_DRAFTS
from paceline.planning.answer import answer, as_json
from paceline.planning.options import PlanOptions
from paceline.planning.page import page_of, write_page
from paceline.planning.speculation import (
    DRAFT_HEADS,
    SAMPLED_HEADS,
    SURFACE_HEADS,
    SpeculationOptions,
    answer_speculation,
    draft_rows,
    reasons,
    sampled_rows,
    speculation_json,
    speculation_page,
    surface_rows,
)
from paceline.planning.table import grid, print_answer, print_list

OUT_OF_REACH_EXIT_CODE = 1

fleet_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
speculation_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


def run_plan(arguments: Sequence[str]) -> None:
    """Run the command that the first argument names; without such a name it is a model."""
    if arguments[:1] == ["speculation"]:
        speculation_app(list(arguments[1:]), prog_name="paceline plan speculation")
    else:
        fleet_app(list(arguments), prog_name="paceline plan")


@fleet_app.command(no_args_is_help=True)
@with_fields(PlanOptions)
def fleet(
    options: PlanOptions,
    model: Annotated[str, typer.Argument(help="A known name, a config.json, a GGUF file, or a name on the hub.")],
) -> None:
    """From a model, a load and targets to replicas and a price. `paceline plan speculation`: when drafting pays."""
    found = answer(options.question(model), options.pools, options.turns)
    if options.json:
        print_json(as_json(found))
    else:
        print_answer(Console(), found)
    if options.html is not None:
        write_page(options.html, page_of(found))
        typer.echo(f"{options.html} (plots)", err=True)
    if found.plan.refusal is not None:
        raise typer.Exit(OUT_OF_REACH_EXIT_CODE)


@speculation_app.command()
@with_fields(SpeculationOptions)
def speculation(options: SpeculationOptions) -> None:
    """The best number of drafts, the speed-up, and the batch where it stops paying."""
    found = answer_speculation(options)
    if options.json:
        print_json(speculation_json(found))
    else:
        console = Console()
        chosen = found.chosen
        headline = f"{chosen.num_drafts} drafts a pass: {chosen.speed_up:.3g} times as fast where verifying is free"
        console.print(headline, style="bold", highlight=False)
        print_list(console, "why", reasons(found, options))
        console.print(grid(DRAFT_HEADS, draft_rows(found)))
        console.print(f"best number of drafts up to {MAX_DRAFTS}, and its speed-up", style="dim", highlight=False)
        console.print(grid(SURFACE_HEADS, surface_rows(found)))
        if found.sampled:
            console.print("drawn on a bigram model", style="dim", highlight=False)
            console.print(grid(SAMPLED_HEADS, sampled_rows(found)))
    if options.html is not None:
        write_page(options.html, speculation_page(found, options))
        typer.echo(f"{options.html} (plots)", err=True)


def print_json(values: Mapping[str, object]) -> None:
    """One JSON object on standard output."""
    typer.echo(json.dumps(values, indent=2, allow_nan=False))
