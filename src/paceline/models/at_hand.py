"""The models that lie on this machine: built-in packages, the hub's cache, folders. Only directories are read."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import CheckpointError, ConfigError
from paceline.models.resolve import BUILT_IN, resolve
from paceline.models.safetensors import INDEX, WHOLE

PACKAGE, HUB_CACHE, FOLDER = "package", "hub cache", "folder"
GGUF, SAFETENSORS = "GGUF", "safetensors"


@dataclass(frozen=True, slots=True)
class ModelAtHand:
    """One model. `name`: what to type to serve it. `path` None: a built-in one whose package is missing."""

    name: str
    source: str
    format: str
    num_bytes: int
    path: Path | None


def models_at_hand(folders: Iterable[Path]) -> Iterator[ModelAtHand]:
    """Built-in ones, then the cache, then what lies anywhere under `folders`. Raises ConfigError for one that isn't."""
    for name in BUILT_IN:
        try:
            path = resolve(name)
        except CheckpointError:
            yield ModelAtHand(name, PACKAGE, GGUF, 0, None)
        else:
            yield ModelAtHand(name, PACKAGE, GGUF, path.stat().st_size, path)
    yield from _in_hub_cache()
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder} is no folder")
        yield from _under(folder)


def _in_hub_cache() -> Iterator[ModelAtHand]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repositories = scan_cache_dir().repos
    except (CacheNotFound, ValueError):
        return
    for repository in sorted(repositories, key=lambda repository: repository.repo_id):
        if repository.repo_type != "model":
            continue
        for revision in repository.revisions:
            for model in _under(revision.snapshot_path):
                # A folder is served by the repository's name, a GGUF file by its path.
                name = repository.repo_id if model.format == SAFETENSORS else model.name
                yield ModelAtHand(name, HUB_CACHE, model.format, model.num_bytes, model.path)


def _under(folder: Path) -> Iterator[ModelAtHand]:
    for place, inner, files in os.walk(folder):
        inner.sort()
        path = Path(place)
        if "config.json" in files and (WHOLE in files or INDEX in files):
            weights = [path / file for file in files if file.endswith(".safetensors")]
            yield ModelAtHand(str(path), FOLDER, SAFETENSORS, sum(map(_size, weights)), path)
        for file in sorted(files):
            if file.endswith(".gguf"):
                yield ModelAtHand(str(path / file), FOLDER, GGUF, _size(path / file), path / file)


def _size(path: Path) -> int:
    """0 for a link whose target is gone."""
    return path.stat().st_size if path.exists() else 0
