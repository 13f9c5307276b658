"""The shapes of all answers, for the OpenAPI document; tests decode real answers as these, unknown fields refused.

Generated answers are put together from bytes (`chat_answer.py`, `completion_answer.py`) and never pass through here.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType


class ErrorObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What went wrong. `param` names the field as it was written: messages[1].content."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of every answer with status 400 or above, and the data of an error inside a stream."""

    error: ErrorObject


class PromptTokensDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`cached_tokens` of the prompt were not computed again."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`reasoning_tokens` of the output were thoughts; told by a server with --reasoning-parser."""

    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of a request: prompts once each, outputs of every choice."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


class TopLogprob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that could have come."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token that came, with the likeliest that could have."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logprobs of a chat choice."""

    content: list[TokenLogprob]
    refusal: None


class PromptLogprob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token at one place of a prompt. `rank` is null when it is not among those asked for."""

    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
FinishReason = Literal["stop", "length"]
ChatFinishReason = Literal["stop", "length", "tool_calls"]


class FunctionCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function and the text of its arguments, which are JSON."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call the model makes."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model said. `content` is null beside calls alone, `reasoning_content` where it did not think."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str | UnsetType | None = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer to a conversation."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class FunctionCallPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name once, then the arguments piece by piece."""

    arguments: str
    name: str | UnsetType = UNSET


class ToolCallPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the call with this index; id and type come with the first."""

    index: int
    function: FunctionCallPart
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a chunk adds to the message; nothing in the last one."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallPart] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A chunk's share of one choice."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletionChunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One event of a streamed chat. `usage` only with stream_options.include_usage: null but on the last chunk."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionLogprobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Logprobs of a completion choice, one entry a token; joined, the tokens are the text."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One continuation of a prompt; in a stream, a part of it, with finish_reason on the last."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET


class Completion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of /v1/completions, and of one event of it in a stream; there `usage` is as in a chat's."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET


class Embedding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The vector of one input: numbers, or the bytes of little-endian float32 as base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of /v1/embeddings, in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class ModelCard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A name under which the model is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    max_model_len: int


class ModelList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All names."""

    object: Literal["list"]
    data: list[ModelCard]


class TokenizeAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of /tokenize. `token_strs` spells the tokens as the vocabulary does, when asked for."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of /detokenize."""

    prompt: str


class Status(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a probe says."""

    status: str


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server's version."""

    version: str
