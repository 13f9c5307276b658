"""POST /tokenize and /detokenize, as vLLM has them: what the model's tokenizer makes of a text, a conversation or ids.

No engine work: the ids of a prompt are those a generation of it would begin with, however long it is.
"""

import asyncio
from dataclasses import dataclass

import msgspec
from fastapi import FastAPI, Request, Response

from paceline.engine.contract import EngineLimits
from paceline.errors import RequestError
from paceline.server.answer_types import DetokenizeAnswer, TokenizeAnswer
from paceline.server.auth import check_key
from paceline.server.body import DetokenizeBody, TokenizeBody
from paceline.server.checks import check_token_ids
from paceline.server.context import ServingContext
from paceline.server.fields import DETOKENIZE, TOKENIZE
from paceline.server.prompts import conversation_ids
from paceline.server.protocol import Conversation, decode, parse_conversation
from paceline.server.receive import read_body
from paceline.server.tool_request import parse_tool_use
from paceline.text.model_text import ModelText

OF_CONVERSATIONS = ("tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")


@dataclass(frozen=True, slots=True)
class TokenizeRequest:
    """A valid body of /tokenize. `model` None: whichever is served."""

    model: str | None
    content: str | Conversation
    add_special_tokens: bool
    returns_pieces: bool


def parse_tokenize(data: bytes, facts: EngineLimits) -> TokenizeRequest:
    """Parse a body of /tokenize. Raises RequestError naming the field."""
    body = decode(data, TOKENIZE, facts, TokenizeBody)
    if (body.prompt is None) == (body.messages is None):
        raise RequestError("send either prompt or messages", "prompt")
    tool_use = parse_tool_use(body)
    for name in OF_CONVERSATIONS if body.prompt is not None else ():
        if getattr(body, name):
            raise RequestError(f"{name} goes with messages, not with prompt", name)
    return TokenizeRequest(
        model=body.model,
        content=parse_conversation(body, tool_use) if body.prompt is None else body.prompt,
        add_special_tokens=body.add_special_tokens is not False,
        returns_pieces=body.return_token_strs is True,
    )


def token_ids_of(text: ModelText, request: TokenizeRequest) -> list[int]:
    """The ids that are asked for. Raises RequestError."""
    if isinstance(request.content, str):
        return text.tokenizer.encode(request.content, request.add_special_tokens)
    return conversation_ids(text, request.content)


async def tokenize(context: ServingContext, request: Request) -> Response:
    """Ids of a text or a conversation."""
    check_key(request, context.config.api_keys)
    text = context.check_ready()
    facts = context.client.limits
    parsed = parse_tokenize(await read_body(request), facts)
    if parsed.model is not None:
        context.check_model(parsed.model)
    token_ids = await asyncio.to_thread(token_ids_of, text, parsed)
    pieces = [text.tokenizer.piece(token_id) for token_id in token_ids] if parsed.returns_pieces else None
    return answer(TokenizeAnswer(len(token_ids), facts.effective_context, token_ids, pieces))


async def detokenize(context: ServingContext, request: Request) -> Response:
    """The text of ids, special tokens written out."""
    check_key(request, context.config.api_keys)
    text = context.check_ready()
    facts = context.client.limits
    body = decode(await read_body(request), DETOKENIZE, facts, DetokenizeBody)
    if body.model is not None:
        context.check_model(body.model)
    check_token_ids(body.tokens, facts.vocab_size, "tokens")
    return answer(DetokenizeAnswer(await asyncio.to_thread(text.tokenizer.decode, body.tokens, False)))


def answer(content: TokenizeAnswer | DetokenizeAnswer) -> Response:
    """An answer as JSON."""
    return Response(msgspec.json.encode(content), media_type="application/json")


def add_tokenizer_routes(app: FastAPI, context: ServingContext) -> None:
    """The two routes; clients that know only one base address find them under /v1 too."""

    @app.post("/tokenize", response_model=None)
    @app.post("/v1/tokenize", response_model=None)
    async def post_tokenize(request: Request) -> Response:
        """Ids of a text or a conversation."""
        return await tokenize(context, request)

    @app.post("/detokenize", response_model=None)
    @app.post("/v1/detokenize", response_model=None)
    async def post_detokenize(request: Request) -> Response:
        """The text of ids."""
        return await detokenize(context, request)
