"""A GGUF file's weights, dequantized, as a bfloat16 checkpoint in Hugging Face's layout.

Its tokenizer is there because the peers refuse a folder without one; the comparison gives them token ids.

python to_hf.py FILE.gguf FOLDER        (in an environment with transformers, torch and gguf)
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    file, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    plain = type(model)(type(model.config)(**config)).to(torch.bfloat16)
    plain.load_state_dict({name: value.to(torch.bfloat16) for name, value in model.state_dict().items()})
    plain.tie_weights()
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main()
