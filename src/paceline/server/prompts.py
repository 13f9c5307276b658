"""From valid requests to token ids. The work runs in a thread, so that no stream waits for a long prompt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.server.protocol import ChatRequest, CompletionRequest, Prompt
from paceline.text.model_text import ModelText
from paceline.text.template import Message
from paceline.text.tool_prompt import fitted


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine gets it, and as `echo` shows it: without the beginning token that encoding added."""

    text: str
    token_ids: Sequence[int]
    has_added_bos: bool


async def encode_chat(text: ModelText, request: ChatRequest) -> list[int]:
    """The token ids of a conversation: the template alone decides what surrounds it. Raises RequestError."""
    messages: Sequence[Message] = [
        {"role": turn.role, "content": turn.content, **turn.extras} for turn in request.turns
    ]
    tools = list(request.tool_use.tools) if request.tool_use is not None else None

    def encode() -> list[int]:
        given, offered = fitted(text.template, messages, tools)
        rendered = text.template.render(given, request.add_generation_prompt, offered)
        return text.tokenizer.encode(rendered, add_special_tokens=False)

    return await asyncio.to_thread(encode)


async def encode_completion(text: ModelText, request: CompletionRequest) -> list[EncodedPrompt]:
    """Every prompt of a completion. Raises RequestError."""

    def encode(prompt: Prompt) -> EncodedPrompt:
        if isinstance(prompt, str):
            token_ids = text.tokenizer.encode(prompt, add_special_tokens=True)
            bos = text.tokenizer.bos_token
            has_added_bos = bool(bos) and token_ids[:1] == [text.tokenizer.bos_id] and not prompt.startswith(bos)
            return EncodedPrompt(prompt, token_ids, has_added_bos)
        shown = text.tokenizer.decode(prompt, skip_special=False) if request.echo else ""
        return EncodedPrompt(shown, prompt, has_added_bos=False)

    return await asyncio.to_thread(lambda: [encode(prompt) for prompt in request.prompts])
