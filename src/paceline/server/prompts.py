"""From valid requests to token ids. The work runs in a thread, so that no stream waits for a long prompt."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.server.protocol import ChatRequest, CompletionRequest, Conversation, Prompt
from paceline.text.model_text import ModelText
from paceline.text.template import Message
from paceline.text.tool_prompt import fitted


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine gets it, and as `echo` shows it: without the beginning token that encoding added.

    `text` is only there for a prompt that was given as text, or is echoed.
    """

    text: str
    token_ids: Sequence[int]
    has_added_bos: bool


async def encode_chat(text: ModelText, request: ChatRequest) -> list[int]:
    """The token ids of a conversation, cut to its last ones where that was asked for. Raises RequestError."""
    token_ids = await asyncio.to_thread(conversation_ids, text, request.conversation)
    return token_ids[-(request.options.max_prompt_tokens or len(token_ids)) :]


def conversation_ids(text: ModelText, conversation: Conversation) -> list[int]:
    """The token ids of a conversation: the template decides what surrounds it, unless told to. Raises RequestError."""
    template, variables = text.template, conversation.variables
    messages: Sequence[Message] = [
        {"role": turn.role, "content": turn.content, **turn.extras} for turn in conversation.turns
    ]
    given, offered = fitted(template, messages, list(conversation.tools) or None)
    if conversation.continues_last:
        rendered = template.render_open(given, offered, **variables)
    else:
        rendered = template.render(given, conversation.add_generation_prompt, offered, **variables)
    return text.tokenizer.encode(rendered, conversation.add_special_tokens)


async def encode_completion(text: ModelText, request: CompletionRequest) -> list[EncodedPrompt]:
    """Every prompt of a completion. Raises RequestError."""

    return await asyncio.to_thread(lambda: [encode_prompt(text, request, prompt) for prompt in request.prompts])


def encode_prompt(text: ModelText, request: CompletionRequest, prompt: Prompt) -> EncodedPrompt:
    """One prompt of a completion, cut to its last tokens where that was asked for. Raises RequestError."""
    tokenizer = text.tokenizer
    given = tokenizer.encode(prompt, request.add_special_tokens) if isinstance(prompt, str) else prompt
    kept = given[-(request.options.max_prompt_tokens or len(given)) :]
    if not isinstance(prompt, str) or len(kept) < len(given):
        shown = tokenizer.decode(kept, skip_special=False) if request.echo else ""
        return EncodedPrompt(shown, kept, has_added_bos=False)
    bos = tokenizer.bos_token
    has_added_bos = bool(bos) and kept[:1] == [tokenizer.bos_id] and not prompt.startswith(bos)
    return EncodedPrompt(prompt, kept, has_added_bos)
