"""The served fields of a request body as they come: types checked, values not yet. null and absent are the same."""

from typing import Any

import msgspec

from paceline.server.structured_fields import ResponseFormat, StructuredOutputs
from paceline.server.tool_body import Tool, ToolChoice

ABSENT = msgspec.Raw(b"null")


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message's content; only text is served."""

    type: str
    text: str | None = None


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One message as OpenAI clients send it, the ones they got from us included. Raw fields are looked at later."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: msgspec.Raw = ABSENT
    function_call: msgspec.Raw = ABSENT
    audio: msgspec.Raw = ABSENT
    refusal: msgspec.Raw = ABSENT
    annotations: msgspec.Raw = ABSENT
    reasoning_content: msgspec.Raw = ABSENT


class StreamOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stream reports. `include_obfuscation` is accepted: we pad nothing."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class Body(msgspec.Struct, frozen=True):
    """All routes' fields; which of them a route serves is judged before this is decoded."""

    model: str
    messages: list[Message] | None = None
    prompt: str | list[str | int | list[int]] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    echo: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    return_token_ids: bool | None = None
    n: int | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    prompt_logprobs: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int | None = None
    cache_salt: str | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: msgspec.Raw = ABSENT
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None


class EmbeddingBody(msgspec.Struct, frozen=True):
    """What /v1/embeddings is asked."""

    model: str
    input: str | list[str | int | list[int]] | None = None
    encoding_format: str | None = None
    dimensions: int | None = None
    normalize: bool | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None


class TokenizeBody(msgspec.Struct, frozen=True):
    """What /tokenize is asked: the ids of a text, or of a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, frozen=True):
    """What /detokenize is asked: the text of some ids."""

    tokens: list[int]
    model: str | None = None
