"""A bfloat16 checkpoint as int8 W8A8 in the compressed-tensors layout that vLLM reads.

Weights are rounded to the nearest of 255 levels per output channel; activations are quantized per token as they come.
Embedding and output projection stay bfloat16.

python to_w8a8.py BF16_FOLDER FOLDER
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

LEVELS = 127
MIN_SCALE = 1e-8


def quantization(strategy: str, is_dynamic: bool) -> dict[str, object]:
    return {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "strategy": strategy,
        "dynamic": is_dynamic,
        "observer": None if is_dynamic else "minmax",
    }


def quantize(name: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    """The tensors that stand for one of the checkpoint's."""
    if not name.endswith("_proj.weight"):
        return {name: weight}
    scale = (weight.float().abs().amax(1, keepdim=True) / LEVELS).clamp(min=MIN_SCALE)
    levels = torch.round(weight.float() / scale).clamp(-LEVELS, LEVELS).to(torch.int8)
    return {name: levels, f"{name}_scale": scale.to(torch.bfloat16)}


def main() -> None:
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, folder)
    tensors: dict[str, torch.Tensor] = {}
    for name, weight in load_file(source / "model.safetensors").items():
        tensors |= quantize(name, weight)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((source / "config.json").read_text())
    group = {
        "targets": ["Linear"],
        "weights": quantization("channel", False),
        "input_activations": quantization("token", True),
        "output_activations": None,
    }
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


if __name__ == "__main__":
    main()
