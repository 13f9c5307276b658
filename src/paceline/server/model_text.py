"""The default text side of a server: the model's own, but for what --chat-template and --generation-config say.

And what of it the engine must know.
"""

from pathlib import Path

from paceline.config import ServeConfig
from paceline.core.spellings import Spellings
from paceline.text.model_text import ModelText
from paceline.text.model_text import load_model_text as load
from paceline.text.tokenizer import Tokenizer


def load_model_text(config: ServeConfig) -> ModelText:
    """Tokenizer and template of the configured model. Raises CheckpointError, or ConfigError for --chat-template."""
    template = Path(config.chat_template) if config.chat_template is not None else None
    return load(config.engine.model, config.engine.revision, template, config.generation_config == "auto")


def spellings_of(tokenizer: Tokenizer) -> Spellings:
    """How the tokenizer's ids are spelled, for grammars. The token that its checkpoint ends with comes first."""
    eos_ids = sorted(tokenizer.eos_ids, key=lambda token_id: (token_id != tokenizer.eos_id, token_id))
    return Spellings(tokenizer.all_token_bytes(), tuple(eos_ids), tuple(sorted(tokenizer.special_ids)))
