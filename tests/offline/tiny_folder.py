"""A tiny llama checkpoint with a byte-level tokenizer, which puts a beginning token before texts when asked to."""

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from models.tiny_checkpoints import make_model, save_model

BOS, BOS_ID = "<bos>", 0


def tiny_folder(folder: Path, model: Any = None, adds_bos: bool = False, first_bytes: str = "") -> Path:
    """Write it. `first_bytes` changes the order of the vocabulary: these pieces come first."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = [BOS, *first_bytes, *(piece for piece in alphabet if piece not in first_bytes)]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    tokenizer.add_special_tokens([AddedToken(BOS, special=True, normalized=False)])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(f"{BOS} $A", special_tokens=[(BOS, BOS_ID)])
    save_model(tiny_model() if model is None else model, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": BOS}))
    return folder


def tiny_model(model_type: str = "llama", **switches: Any) -> Any:
    """Random float32 weights for that vocabulary."""
    return make_model(model_type, **{"vocab_size": 257} | switches)
