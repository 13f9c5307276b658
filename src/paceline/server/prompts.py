"""From valid requests to token ids. The work runs in a thread, so that no stream waits for a long prompt."""

import asyncio
import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.server.protocol import ChatRequest, CompletionRequest, Prompt
from paceline.text.template import ChatTemplate
from paceline.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class ModelText:
    """The text side of a model: what turns conversations into token ids and token ids into text."""

    tokenizer: Tokenizer
    template: ChatTemplate


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """A prompt as the engine gets it, and as `echo` shows it."""

    text: str
    token_ids: Sequence[int]

    def pieces(self, tokenizer: Tokenizer) -> list[str]:
        """What each token adds to the text; joined they are the text, but for tokens the tokenizer put around it."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        last = len(self.token_ids) - 1
        return [
            decoder.decode(tokenizer.token_bytes(token_id), final=index == last)
            for index, token_id in enumerate(self.token_ids)
        ]


async def encode_chat(text: ModelText, request: ChatRequest) -> list[int]:
    """The token ids of a conversation: the template alone decides what surrounds it. Raises RequestError."""
    messages = [{"role": turn.role, "content": turn.content} for turn in request.turns]

    def encode() -> list[int]:
        rendered = text.template.render(messages, request.add_generation_prompt)
        return text.tokenizer.encode(rendered, add_special_tokens=False)

    return await asyncio.to_thread(encode)


async def encode_completion(text: ModelText, request: CompletionRequest) -> list[EncodedPrompt]:
    """Every prompt of a completion. Raises RequestError."""

    def encode(prompt: Prompt) -> EncodedPrompt:
        if isinstance(prompt, str):
            return EncodedPrompt(prompt, text.tokenizer.encode(prompt, add_special_tokens=True))
        shown = text.tokenizer.decode(prompt, skip_special=False) if request.echo else ""
        return EncodedPrompt(shown, prompt)

    return await asyncio.to_thread(lambda: [encode(prompt) for prompt in request.prompts])
