"""The text side of a model, loaded from its own files: what turns conversations into token ids, and ids into text."""

from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.models.gguf import read_gguf
from paceline.models.resolve import resolve
from paceline.text.defaults import BUILT_IN, SamplingDefaults, folder_defaults, gguf_defaults
from paceline.text.folder_tokenizer import folder_tokenizer
from paceline.text.gguf_tokenizer import gguf_tokenizer
from paceline.text.template import MAX_TEMPLATE_CHARS, ChatTemplate, folder_template, gguf_template
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelText:
    """A model's tokenizer, chat template and sampling defaults."""

    tokenizer: Tokenizer
    template: ChatTemplate
    defaults: SamplingDefaults = BUILT_IN


def load_model_text(
    model: str, revision: str | None = None, template_file: Path | None = None, uses_defaults: bool = True
) -> ModelText:
    """Tokenizer, template and, unless not wanted, defaults of a model; `template_file` replaces its own template.

    Raises CheckpointError, or ConfigError for the template file.
    """
    path = resolve(model, revision)
    if path.is_dir():
        tokenizer = folder_tokenizer(path)
        template = folder_template(path, tokenizer)
        defaults = folder_defaults(path) if uses_defaults else BUILT_IN
    else:
        metadata = read_gguf(path).metadata
        tokenizer = gguf_tokenizer(metadata)
        template = gguf_template(metadata, tokenizer)
        defaults = gguf_defaults(metadata) if uses_defaults else BUILT_IN
    if template_file is not None:
        template = template_from_file(template_file, tokenizer)
    return ModelText(tokenizer, template, defaults)


def template_from_file(path: Path, tokenizer: Tokenizer) -> ChatTemplate:
    """The template that --chat-template names. Raises ConfigError, or CheckpointError when it is wrong Jinja."""
    try:
        with path.open(encoding="utf-8") as file:
            source = file.read(MAX_TEMPLATE_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--chat-template must be a readable UTF-8 file, got {str(path)!r}: {error}") from None
    return ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token)
