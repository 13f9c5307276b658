"""The real engine in its own process, asked by its client alone or through the server's sessions, without HTTP."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from paceline.config import DEFAULT_ENGINE_FACTORY, EngineConfig
from paceline.core.plan import TokenLogprobs
from paceline.engine.child import EngineCommand, start_engine
from paceline.engine.client import EngineClient, EngineState
from paceline.observe.requests import RequestMetrics
from paceline.server.prompts import encode_completion
from paceline.server.protocol import parse_completion
from paceline.server.session import Session, Usage
from paceline.text.model_text import ModelText

MODEL = "smollm2-135m"
BLOCK_BYTES = 16 * 23_040  # 16 tokens of 2 x 30 layers x 3 heads x 64 values of 2 bytes


@asynccontextmanager
async def smol_engine(config: EngineConfig) -> AsyncIterator[EngineClient]:
    """A client of a fresh engine process that is ready."""
    command = EngineCommand(DEFAULT_ENGINE_FACTORY, config.to_json_mapping())
    client = EngineClient(command, start_engine(command))
    try:
        assert await client.settled() is EngineState.READY, client.failure
        yield client
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class Answer:
    """One choice as a stream showed it, delta by delta."""

    texts: tuple[str, ...]
    tokens: tuple[TokenLogprobs, ...]
    finish_reasons: tuple[str, ...]
    usage: Usage

    @property
    def text(self) -> str:
        return "".join(self.texts)


async def ask(client: EngineClient, text: ModelText, body: dict[str, Any]) -> Answer:
    """Stream a completion with logprobs, from the body of its request."""
    data = json.dumps({"model": MODEL, "logprobs": 1, "stream": True} | body).encode()
    request = parse_completion(data, client.limits)
    session = Session(client, text.tokenizer, request.options, lambda: 0, RequestMetrics())
    session.submit([prompt.token_ids for prompt in await encode_completion(text, request)])
    deltas = [delta async for batch in session.deltas() for delta in batch]
    return Answer(
        texts=tuple(delta.text for delta in deltas),
        tokens=tuple(token.scored for delta in deltas for token in delta.tokens),
        finish_reasons=tuple(delta.finish_reason for delta in deltas if delta.finish_reason),
        usage=session.usage,
    )
