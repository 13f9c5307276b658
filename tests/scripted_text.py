"""A tiny byte-level vocabulary, and the text a scripted engine says with it: words, characters split over tokens."""

from pathlib import Path

from paceline.config import ServeConfig
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.model_text import ModelText, template_from_file
from paceline.text.template import ChatTemplate

# GPT-2's spelling of bytes (Radford et al. 2019, `bytes_to_unicode`).
PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
HIDDEN = [byte for byte in range(256) if byte not in PRINTABLE]
SPELLING = {byte: chr(byte) for byte in PRINTABLE} | {byte: chr(0x100 + index) for index, byte in enumerate(HIDDEN)}

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
END_ID, TURN_END_ID = 0, 2
WORDS = [" five", ",", " six", " sev", "en", " eight", ", n", "ine", ", ten, elev", "en,"]
FIRST_BYTE_ID = len(SPECIALS)
FIRST_WORD_ID = FIRST_BYTE_ID + 256
VOCAB_SIZE = FIRST_WORD_ID + len(WORDS)
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_ids(text: str) -> list[int]:
    """A text as one token a byte."""
    return [FIRST_BYTE_ID + byte for byte in text.encode()]


WORD_IDS = {word: FIRST_WORD_ID + index for index, word in enumerate(WORDS)}
# " five, six, seven, eight, nine, ten, eleven, Yés 日本" with é and 日 split over tokens.
SCRIPT = [
    *(
        WORD_IDS[w]
        for w in [" five", ",", " six", ",", " sev", "en", ",", " eight", ", n", "ine", ", ten, elev", "en,"]
    ),
    *byte_ids(" Yés 日本"),
]
SCRIPT_TEXT = " five, six, seven, eight, nine, ten, eleven, Yés 日本"


def build(config: ServeConfig) -> ModelText:
    """The factory: text side of the scripted engine, with the config's template file if it names one."""
    pieces = [*SPECIALS, *(SPELLING[byte] for byte in range(256))]
    pieces += ["".join(SPELLING[byte] for byte in word.encode()) for word in WORDS]
    tokenizer = gguf_tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": pieces,
            "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(pieces) - len(SPECIALS)),
            "tokenizer.ggml.merges": [],
            "tokenizer.ggml.eos_token_id": TURN_END_ID,
        }
    )
    if config.chat_template is not None:
        return ModelText(tokenizer, template_from_file(Path(config.chat_template), tokenizer))
    return ModelText(tokenizer, ChatTemplate(TEMPLATE, tokenizer.bos_token, tokenizer.eos_token))
