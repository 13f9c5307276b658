"""The text side of a model, loaded from its own files: what turns conversations into token ids, and ids into text."""

from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.models.gguf import read_gguf
from paceline.models.resolve import resolve
from paceline.text.folder_tokenizer import folder_tokenizer
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.template import MAX_TEMPLATE_CHARS, ChatTemplate, folder_template, gguf_template
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelText:
    """A model's tokenizer and chat template."""

    tokenizer: Tokenizer
    template: ChatTemplate


def load_model_text(model: str, revision: str | None = None, template_file: Path | None = None) -> ModelText:
    """Tokenizer and template of a model; `template_file` replaces its own (--chat-template).

    Raises CheckpointError, or ConfigError for the template file.
    """
    path = resolve(model, revision)
    if path.is_dir():
        tokenizer = folder_tokenizer(path)
        template = folder_template(path, tokenizer)
    else:
        metadata = read_gguf(path).metadata
        tokenizer = gguf_tokenizer(metadata)
        template = gguf_template(metadata, tokenizer)
    if template_file is not None:
        template = template_from_file(template_file, tokenizer)
    return ModelText(tokenizer, template)


def template_from_file(path: Path, tokenizer: Tokenizer) -> ChatTemplate:
    """The template that --chat-template names. Raises ConfigError, or CheckpointError when it is wrong Jinja."""
    try:
        with path.open(encoding="utf-8") as file:
            source = file.read(MAX_TEMPLATE_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template must be a readable UTF-8 file, got {str(path)!r}: {error}") from None
    return ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token)
