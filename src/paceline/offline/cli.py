"""The commands that need no server of one's own: one typer application, to which `paceline.cli` hands its arguments."""

import typer

from paceline.offline.batch import batch, run_batch_command
from paceline.offline.chat import chat
from paceline.offline.evaluate import evaluate
from paceline.offline.models import app as models_app

# Options that we don't know belong to `paceline serve`, which a command may start.
SERVE_OPTIONS_FOLLOW = {"allow_extra_args": True, "ignore_unknown_options": True}

app = typer.Typer(
    name="paceline",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("batch", context_settings=SERVE_OPTIONS_FOLLOW)(batch)
app.command("run-batch", context_settings=SERVE_OPTIONS_FOLLOW)(run_batch_command)
app.command("chat", context_settings=SERVE_OPTIONS_FOLLOW)(chat)
app.command("eval")(evaluate)
app.add_typer(models_app)
