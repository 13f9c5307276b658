"""The default text side of a server: the model's own, but for what --chat-template and --generation-config say."""

from pathlib import Path

from paceline.config import ServeConfig
from paceline.text.model_text import ModelText
from paceline.text.model_text import load_model_text as load


def load_model_text(config: ServeConfig) -> ModelText:
    """Tokenizer and template of the configured model. Raises CheckpointError, or ConfigError for --chat-template."""
    template = Path(config.chat_template) if config.chat_template is not None else None
    return load(config.engine.model, config.engine.revision, template, config.generation_config == "auto")
