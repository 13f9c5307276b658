"""What every route works with: the config, the engine's client, the model's text side, and whether we are draining.

One per process, made at start. `text` is None until tokenizer and template have loaded.
"""

import random
import secrets
from dataclasses import dataclass, field

from paceline import __version__
from paceline.config import ServeConfig
from paceline.engine.client import EngineClient
from paceline.errors import UnavailableError, UnknownModelError
from paceline.observe.metrics import Metrics
from paceline.server.checks import listed, shown
from paceline.server.embedding_session import EmbeddingSession
from paceline.server.session import Session
from paceline.text.model_text import ModelText

DRAIN_RETRY_AFTER_S = 5.0
LOAD_RETRY_AFTER_S = 2.0


@dataclass(slots=True)
class ServingContext:
    """The server's state. Written by its start and stop only; routes add and remove their open sessions.

    `num_open_requests`: HTTP requests that have arrived and are not answered yet, with a session or without.
    """

    config: ServeConfig
    client: EngineClient
    created_s: int
    text: ModelText | None = None
    is_draining: bool = False
    open_sessions: set[Session | EmbeddingSession] = field(default_factory=set)
    num_open_requests: int = 0
    seeds: random.Random | None = None
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        engine = self.config.engine
        cache = {
            "cache_dtype": engine.kv_cache_dtype,
            "enable_prefix_caching": str(engine.enable_prefix_caching).lower(),
        }
        self.metrics = Metrics(self.client, self.config.model_names[0], {"version": __version__}, cache)

    def check_ready(self) -> ModelText:
        """The model's text side. Raises UnavailableError while requests can't be served."""
        if self.is_draining:
            raise UnavailableError("the server is shutting down", DRAIN_RETRY_AFTER_S)
        self.client.check_ready()
        if self.text is None:
            raise UnavailableError("the model is loading", LOAD_RETRY_AFTER_S)
        return self.text

    def check_model(self, name: str) -> None:
        """Raise UnknownModelError, with the list, unless `name` is served here."""
        names = self.config.model_names
        if name not in names:
            raise UnknownModelError(f"the model {shown(name)} is not served here; served: {listed(names)}", "model")

    def draw_seed(self) -> int:
        """The seed of a request that brought none: from the server's own seed when it has one."""
        return secrets.randbits(64) if self.seeds is None else self.seeds.getrandbits(64)
