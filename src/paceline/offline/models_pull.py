"""`paceline models pull`: a model from the hub into the local cache, only the files we read.

Its configuration comes first: a model that we don't serve is refused before its weights are downloaded.
"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from paceline.errors import CheckpointError
from paceline.models.config_json import spec_from_config
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.gguf_checkpoint import open_gguf
from paceline.models.resolve import BUILT_IN, from_hub, resolve
from paceline.models.safetensors import read_json

CONFIG = "config.json"


def pull(
    name: Annotated[str, typer.Argument(help="Name on the hub: owner/name.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    file: Annotated[str | None, typer.Option(help="A GGUF file of the repository, instead of its safetensors.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Download a model, check it, and print the path of what to serve. HF_TOKEN and HF_HUB_OFFLINE are honoured."""
    if name in BUILT_IN or Path(name).expanduser().exists():
        path = resolve(name)
    else:
        path = pull_folder(name, revision) if file is None else pull_file(name, revision, file)
    typer.echo(msgspec.json.encode({"name": name, "path": str(path)}) if as_json else str(path))


def pull_folder(name: str, revision: str | None) -> Path:
    """The safetensors and what belongs to them. Raises CheckpointError when they aren't there, or not served."""
    config = from_hub(name, revision, [CONFIG]) / CONFIG
    if not config.is_file():
        raise CheckpointError(f"model {name!r} holds no {CONFIG}; if it holds GGUF files, name one with --file")
    spec_from_config(read_json(config), str(config))
    folder = from_hub(name, revision)
    DirectoryCheckpoint(folder)
    return folder


def pull_file(name: str, revision: str | None, file: str) -> Path:
    """One GGUF file. Raises CheckpointError when it isn't there, or not served."""
    path = from_hub(name, revision, [file]) / file
    if not path.is_file():
        raise CheckpointError(f"model {name!r} holds no file {file!r}")
    open_gguf(path)
    return path
