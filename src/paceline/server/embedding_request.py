"""The body of /v1/embeddings as a value that can't be invalid, and its inputs as token ids."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.engine.contract import EngineLimits
from paceline.errors import ContextLengthError, RequestError
from paceline.server.body import EmbeddingBody
from paceline.server.checks import check_range, shown
from paceline.server.embedding_vector import VectorForm
from paceline.server.fields import EMBEDDING
from paceline.server.limits import MAX_INT32
from paceline.server.options import parse_namespace, parse_truncation
from paceline.server.protocol import Prompt, decode, parse_prompts
from paceline.text.model_text import ModelText


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """A valid body. `max_input_tokens`: keep so many of the last tokens of each input; None refuses what is too long.

    `is_base64`: vectors go out as the bytes of little-endian float32, else as JSON numbers.
    """

    model: str
    inputs: tuple[Prompt, ...]
    form: VectorForm
    is_base64: bool
    max_input_tokens: int | None
    adds_special_tokens: bool
    priority: int
    namespace: bytes


def parse_embedding(data: bytes, limits: EngineLimits) -> EmbeddingRequest:
    """Parse a request. Raises RequestError naming the field, the limit and the value."""
    body = decode(data, EMBEDDING, limits, EmbeddingBody)
    if body.encoding_format not in (None, "float", "base64"):
        raise RequestError(
            f"encoding_format must be 'float' or 'base64', got {shown(body.encoding_format)}", "encoding_format"
        )
    if body.dimensions is not None:
        check_range(body.dimensions, 1, limits.embedding_width, "dimensions")
    priority = body.priority or 0
    check_range(priority, -MAX_INT32, MAX_INT32, "priority")
    return EmbeddingRequest(
        model=body.model,
        inputs=parse_prompts(body.input, limits.vocab_size, "input"),
        form=VectorForm(body.dimensions, body.normalize is not False),
        is_base64=body.encoding_format == "base64",
        max_input_tokens=parse_truncation(body.truncate_prompt_tokens, 0, limits.effective_context),
        adds_special_tokens=body.add_special_tokens is not False,
        priority=priority,
        namespace=parse_namespace(body.cache_salt),
    )


async def encode_inputs(text: ModelText, request: EmbeddingRequest, context: int) -> list[Sequence[int]]:
    """Token ids of every input, in a thread: no stream waits for them. Raises RequestError naming the input."""

    def encode(index: int, given: Prompt) -> Sequence[int]:
        param = "input" if len(request.inputs) == 1 else f"input[{index}]"
        token_ids = text.tokenizer.encode(given, request.adds_special_tokens) if isinstance(given, str) else given
        if not token_ids:
            raise RequestError(f"{param} must hold at least one token", param)
        if request.max_input_tokens is not None:
            token_ids = token_ids[-request.max_input_tokens :]
        if len(token_ids) > context:
            raise ContextLengthError(
                f"{param} has {len(token_ids)} tokens, the context holds {context}; "
                "shorten it or set truncate_prompt_tokens",
                param,
            )
        return token_ids

    return await asyncio.to_thread(lambda: [encode(index, given) for index, given in enumerate(request.inputs)])
