"""Loads the text side of the model that is served: its tokenizer and its chat template, from the model's own files."""

from pathlib import Path

from paceline.config import ServeConfig
from paceline.errors import ConfigError
from paceline.models.gguf import read_gguf
from paceline.models.resolve import resolve
from paceline.server.prompts import ModelText
from paceline.text.folder_tokenizer import folder_tokenizer
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.template import MAX_TEMPLATE_CHARS, ChatTemplate, folder_template, gguf_template
from paceline.text.tokenizer import Tokenizer


def load_model_text(config: ServeConfig) -> ModelText:
    """Tokenizer and template of the configured model. Raises CheckpointError, or ConfigError for --chat-template."""
    path = resolve(config.engine.model)
    if path.is_dir():
        tokenizer = folder_tokenizer(path)
        template = folder_template(path, tokenizer)
    else:
        metadata = read_gguf(path).metadata
        tokenizer = gguf_tokenizer(metadata)
        template = gguf_template(metadata, tokenizer)
    if config.chat_template is not None:
        template = template_from_file(Path(config.chat_template), tokenizer)
    return ModelText(tokenizer, template)


def template_from_file(path: Path, tokenizer: Tokenizer) -> ChatTemplate:
    """The template that --chat-template names. Raises ConfigError, or CheckpointError when it is wrong Jinja."""
    try:
        with path.open(encoding="utf-8") as file:
            source = file.read(MAX_TEMPLATE_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template must be a readable UTF-8 file, got {str(path)!r}: {error}") from None
    return ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token)
