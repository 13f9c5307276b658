"""How a checkpoint of the sentence-transformers library wants its hidden states pooled (`1_Pooling/config.json`).

Its files come in two dialects: one boolean a mode (`pooling_mode_mean_tokens`), and the mode's name (`pooling_mode`).
"""

from pathlib import Path

from paceline.errors import CheckpointError
from paceline.models.safetensors import read_json

# The library's words → ours.
SERVED_MODES = {"lasttoken": "last", "mean": "mean", "mean_tokens": "mean"}
REMEDY = "choose what to serve with --pooling-type last or mean"


def declared_pooling(path: Path) -> str | None:
    """ "last" or "mean"; None when the checkpoint says nothing, as generating models do.

    Raises CheckpointError for what we would do otherwise than its author: another mode, or a layer after pooling.
    """
    file = path / "1_Pooling" / "config.json"
    if not file.is_file():
        return None
    layers = sorted(layer.name for layer in path.glob("*_Dense"))
    if layers:
        raise CheckpointError(f"{path}: {layers[0]} (a layer after pooling) is not served; {REMEDY}")
    values = read_json(file)
    prefix = "pooling_mode_"
    named = values.get("pooling_mode")
    modes = [named] if named else [key.removeprefix(prefix) for key in values if key.startswith(prefix) and values[key]]
    served = SERVED_MODES.get(str(modes[0])) if len(modes) == 1 else None
    if served is None:
        shown = ", ".join(map(str, modes))[:100] or "nothing"
        raise CheckpointError(f"{file} asks for pooling by {shown}; {REMEDY}")
    return served
