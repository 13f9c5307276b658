"""What a user calls a model, as sizes: a known name, a config.json, a GGUF file, a name on the hub."""

from collections.abc import Mapping
from pathlib import Path

from paceline.costs.config_format import format_from_config
from paceline.costs.config_size import size_from_config
from paceline.costs.formats import NumberFormat
from paceline.costs.known_models import KNOWN_MODELS, known_model
from paceline.costs.model_size import Experts, ModelSize
from paceline.errors import CheckpointError
from paceline.models.fields import Fields
from paceline.models.gguf import GgufFile, read_gguf
from paceline.models.resolve import resolve
from paceline.models.safetensors import read_json

# Of a hub repository a plan needs one small file.
CONFIG_PATTERNS = ("config.json",)


def size_of(name: str) -> tuple[ModelSize, NumberFormat | None]:
    """The model's sizes, and the format its weights are stored in where a file says so. Raises CheckpointError.

    A path that exists wins over a known name, and that over the hub, where only config.json is fetched.
    """
    known = known_model(name)
    if known is not None and not Path(name).expanduser().exists():
        return known, None
    path = _resolved(name)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        config = read_json(path)
        return size_from_config(config, name), format_from_config(config, name)
    return size_from_gguf(read_gguf(path), name)


def _resolved(name: str) -> Path:
    try:
        return resolve(name, hub_patterns=CONFIG_PATTERNS)
    except CheckpointError as error:
        if name.startswith((".", "/", "~")) or name.endswith(".gguf"):
            raise
        known = ", ".join(KNOWN_MODELS)
        raise CheckpointError(f"{error.message}; give a path, a name of the hub, or one of {known}") from error


def size_from_gguf(file: GgufFile, name: str) -> tuple[ModelSize, NumberFormat]:
    """Sizes by metadata, parameters and bytes by the tensors: any architecture that states the usual keys."""
    whole = Fields(file.metadata, str(file.path))
    prefix = f"{whole.text('general.architecture')}."
    model = Fields({k.removeprefix(prefix): v for k, v in file.metadata.items() if k.startswith(prefix)}, whole.where)
    num_heads, num_layers = model.integer("attention.head_count"), model.integer("block_count")
    head_width = model.integer("attention.key_length", model.integer("embedding_length") // max(num_heads, 1))
    params = {tensor.name: tensor.num_rows * tensor.columns for tensor in file.tensors.values()}
    num_params = sum(params.values())
    experts, num_active_params = _experts(model, params)
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise CheckpointError(f"{file.path}: tensor 'token_embd.weight' is missing")
    window = model.integer("attention.sliding_window", 0) or None
    latent = model.integer("attention.kv_lora_rank", 0)
    size = ModelSize(
        name=name,
        num_params=num_params,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=model.integer("attention.head_count_kv", num_heads),
        head_width=head_width,
        vocab_size=embedding.num_rows,
        max_context=model.integer("context_length"),
        num_active_params=num_active_params,
        experts=experts,
        windows=() if window is None else _windows(prefix, window, num_layers),
        latent_width=latent + model.integer("rope.dimension_count") if latent else None,
    )
    num_bytes = sum(tensor.data.nbytes for tensor in file.tensors.values())
    return size, NumberFormat("as in the file", num_bytes / num_params, f"{num_bytes:,} bytes of tensors")


def _experts(model: Fields, params: Mapping[str, int]) -> tuple[Experts | None, float | None]:
    """Tensors named `…_exps…` hold all experts of a layer side by side."""
    num_experts = model.integer("expert_count", 0)
    if num_experts < 2:
        return None, None
    experts = Experts(num_experts, model.integer("expert_used_count"))
    in_experts = sum(number for name, number in params.items() if "_exps" in name)
    return experts, sum(params.values()) - in_experts * (1.0 - experts.num_chosen / num_experts)


def _windows(prefix: str, window: int, num_layers: int) -> tuple[int | None, ...]:
    """GGUF states the window but not which layers have it; that goes by architecture."""
    full_every = {"gemma2.": 2, "gemma3.": 6, "gpt-oss.": 2}.get(prefix, 0)
    return tuple(None if full_every and (index + 1) % full_every == 0 else window for index in range(num_layers))
