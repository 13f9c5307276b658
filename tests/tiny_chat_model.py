"""A tiny random checkpoint with a byte-level tokenizer that puts <bos> first, and a template that writes it too."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from models.tiny_checkpoints import make_model, save_model

BOS_ID = 2
SPECIAL = ("<pad>", "<eos>", "<bos>", "<turn>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<turn>{{ message.role }}\n{{ message.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)


def save_chat_model(folder: Path) -> Path:
    """Write the checkpoint into a folder."""
    pieces = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({piece: index for index, piece in enumerate(pieces)}, []))
    tokenizer.add_special_tokens([AddedToken(piece, special=True, normalized=False) for piece in SPECIAL])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", BOS_ID)])
    save_model(make_model("llama", vocab_size=len(pieces)), folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder
