"""Which fields a request body may hold: served, neutral, metadata, or known but not served. Everything else is unknown.

A field that would change the answer and is not served is refused by name, unless its value is one that asks for
nothing (`NEUTRAL`). Pure metadata is accepted and ignored. Values of fields that are not served are never decoded
beyond a few bytes, so their size and depth cost nothing.
"""

from collections.abc import Mapping

import msgspec

from paceline.errors import RequestError, UnsupportedFieldError
from paceline.server.sizes import check_size

SAMPLING = {
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
}
ENDING = {"stop", "stop_token_ids", "ignore_eos", "min_tokens", "max_tokens", "include_stop_str_in_output"}
REPORTING = {"stream", "stream_options", "logprobs", "prompt_logprobs", "skip_special_tokens", "return_token_ids"}
PROMPT = {"add_special_tokens", "truncate_prompt_tokens"}
TOOLS = {"tools", "tool_choice", "parallel_tool_calls"}
TEMPLATE = TOOLS | {"messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs"}
STRUCTURED = {
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
}
COMMON = SAMPLING | ENDING | REPORTING | PROMPT | STRUCTURED | {"model", "n", "priority", "cache_salt"}
CHAT = frozenset(COMMON | TEMPLATE | {"max_completion_tokens", "top_logprobs", "include_reasoning"})
COMPLETION = frozenset(COMMON | {"prompt", "echo"})
VECTOR = {"encoding_format", "dimensions", "normalize", "truncate_prompt_tokens", "add_special_tokens"}
EMBEDDING = frozenset(VECTOR | {"model", "input", "priority", "cache_salt"})
TOKENIZE = frozenset(TEMPLATE | {"model", "prompt", "add_special_tokens", "return_token_strs"})
DETOKENIZE = frozenset({"model", "tokens"})
ROUTE_FIELDS = CHAT | COMPLETION | EMBEDDING | TOKENIZE | DETOKENIZE

METADATA = {
    "store",
    "metadata",
    "service_tier",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
}

ABSENT = (None,)
# Field → the values that ask for nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "tools": (None, []),
    "tool_choice": (None, "none", "auto"),
    "parallel_tool_calls": (None, True, False),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "audio": ABSENT,
    "prediction": ABSENT,
    "reasoning_effort": ABSENT,
    "verbosity": ABSENT,
    "web_search_options": ABSENT,
    "suffix": (None, ""),
    "best_of": (None, 1),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1.0),
    "early_stopping": (None, False),
    "bad_words": (None, []),
    "allowed_token_ids": ABSENT,
    "spaces_between_special_tokens": (None, True),
    "continue_final_message": (None, False),
    "chat_template": ABSENT,
    "chat_template_kwargs": (None, {}),
    "documents": (None, []),
    "logits_processors": (None, []),
    "prompt_embeds": ABSENT,
    "return_tokens_as_token_ids": (None, False),
    "kv_transfer_params": ABSENT,
    "vllm_xargs": ABSENT,
    "echo": (None, False),
}
MAX_NEUTRAL_BYTES = 32
# Fields that may be long; what they may hold is counted before they are decoded (`sizes.py`).
SIZED_APART = ("messages", "prompt", "tokens", "input")


def check_fields(body: Mapping[str, msgspec.Raw], served: frozenset[str]) -> None:
    """Refuse unknown fields, and known ones neither served nor neutral. Raises RequestError naming the field."""
    for name, raw in body.items():
        if name in served:
            if name not in SIZED_APART:
                check_size(name, raw)
        elif name not in METADATA and not (name in NEUTRAL and is_neutral(name, raw)):
            raise refusal(name)


def refusal(name: str) -> RequestError:
    """Why a field is not taken by the route it came to."""
    if name in ROUTE_FIELDS:
        return RequestError(f"{name} is not a field of this route; remove it", param=name)
    if name not in NEUTRAL:
        return RequestError(f"unknown field {name[:100]!r}; remove it", param=name[:100])
    neutral = ", ".join(msgspec.json.encode(value).decode() for value in NEUTRAL[name])
    return UnsupportedFieldError(f"{name} is not supported by this server; remove it (or send {neutral})", name)


def is_neutral(name: str, raw: msgspec.Raw) -> bool:
    """Whether the value asks for nothing that we would have to do."""
    data = bytes(raw)
    if len(data) > MAX_NEUTRAL_BYTES:
        return False
    value = msgspec.json.decode(data)
    return any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in NEUTRAL[name])
