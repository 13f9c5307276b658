"""`paceline models …`: what is at hand, getting more, looking into one."""

import typer

from paceline.offline.models_inspect import inspect
from paceline.offline.models_list import list_models
from paceline.offline.models_pull import pull

app = typer.Typer(
    name="models",
    help="Models: list those at hand, pull from the hub, inspect.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
app.command("list")(list_models)
app.command()(pull)
app.command()(inspect)
