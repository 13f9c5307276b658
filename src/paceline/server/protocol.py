"""From the bytes of a request body to a value that can't be invalid.

Two passes over the JSON: the first splits it into named raw values and judges the names (`fields.py`), the second
decodes the served ones into `Body`, which checks types, and the functions below check values. The results are frozen
and complete: what the rest of the server reads needs no further test. null means absent everywhere, as in OpenAI's API.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from paceline.engine.contract import EngineLimits
from paceline.errors import RequestError, UnsupportedFieldError
from paceline.server.body import Body, ContentPart, Message, TokenizeBody
from paceline.server.checks import check_length, check_token_ids, shown
from paceline.server.defaults import with_defaults
from paceline.server.fields import CHAT, COMPLETION, check_fields
from paceline.server.limits import (
    MAX_LISTED_TOKENS,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_SEQUENCES,
    MAX_TEMPLATE_VARIABLES,
)
from paceline.server.options import Options, parse_options
from paceline.server.sizes import check_input_size, check_messages_size, check_prompt_size
from paceline.server.tool_history import answer_calls, check_calls_size, message_extras
from paceline.server.tool_request import ToolUse, parse_tool_use, with_forced_call
from paceline.text.defaults import BUILT_IN, SamplingDefaults

T = TypeVar("T")
Prompt = str | tuple[int, ...]

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
EMPTY_VALUES = (b"null", b"[]", b'""')
UNSERVED_MESSAGE_FIELDS = ("function_call", "audio", "refusal", "annotations")


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message of the conversation, plain text under one of the template's roles.

    `extras`: further keys as templates take them (tool_calls, tool_call_id, name, reasoning_content).
    """

    role: str
    content: str
    extras: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a chat template makes a prompt of. `continues_last`: the last turn is still being written."""

    turns: tuple[ChatTurn, ...]
    add_generation_prompt: bool = True
    continues_last: bool = False
    variables: Mapping[str, object] = field(default_factory=dict)
    tools: tuple[Mapping[str, object], ...] = ()
    add_special_tokens: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A valid body of /v1/chat/completions."""

    model: str
    conversation: Conversation
    options: Options
    tool_use: ToolUse | None
    includes_reasoning: bool


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A valid body of /v1/completions: each prompt is text or token ids."""

    model: str
    prompts: tuple[Prompt, ...]
    echo: bool
    add_special_tokens: bool
    options: Options


def parse_chat(data: bytes, limits: EngineLimits, defaults: SamplingDefaults = BUILT_IN) -> ChatRequest:
    """Parse a chat request. Raises RequestError naming the field, the limit and the value."""
    body = with_defaults(decode(data, CHAT, limits, Body), defaults)
    options = parse_options(body, limits, chat_logprobs(body))
    if options.ending.max_tokens == 0:
        name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
        raise RequestError(f"{name} must be at least 1, got 0", name)
    tool_use = parse_tool_use(body)
    return ChatRequest(
        model=body.model,
        conversation=parse_conversation(body, tool_use),
        options=with_forced_call(options, tool_use),
        tool_use=tool_use,
        includes_reasoning=body.include_reasoning is not False,
    )


def parse_conversation(body: Body | TokenizeBody, tool_use: ToolUse | None) -> Conversation:
    """The conversation of a body and how it becomes a prompt. Raises RequestError."""
    if not body.messages:
        raise RequestError("messages must hold at least one message", "messages")
    check_length(body.messages, MAX_MESSAGES, "messages", "messages")
    continues = body.continue_final_message is True
    if continues and body.add_generation_prompt:
        raise RequestError(
            "continue_final_message continues the last message, add_generation_prompt begins a new one; send one",
            "continue_final_message",
        )
    turns = chat_turns(body.messages)
    if continues and turns[-1].extras.get("tool_calls"):
        raise RequestError("the last message has tool_calls; it can't be continued", "continue_final_message")
    variables = body.chat_template_kwargs or {}
    check_length(variables, MAX_TEMPLATE_VARIABLES, "chat_template_kwargs", "variables")
    return Conversation(
        turns=turns,
        add_generation_prompt=body.add_generation_prompt is not False and not continues,
        continues_last=continues,
        variables=variables,
        tools=() if tool_use is None else tool_use.tools,
        add_special_tokens=body.add_special_tokens is True,
    )


def parse_completion(data: bytes, limits: EngineLimits, defaults: SamplingDefaults = BUILT_IN) -> CompletionRequest:
    """Parse a completion request. Raises RequestError naming the field, the limit and the value."""
    body = with_defaults(decode(data, COMPLETION, limits, Body), defaults)
    if isinstance(body.logprobs, bool):
        raise RequestError("logprobs must be a number of alternatives here, got a boolean", "logprobs")
    options = parse_options(body, limits, body.logprobs)
    echo = body.echo is True
    prompts = parse_prompts(body.prompt, limits.vocab_size)
    if len(prompts) * options.num_choices > MAX_SEQUENCES:
        raise RequestError(
            f"prompts × n may be at most {MAX_SEQUENCES}, got {len(prompts)} × {options.num_choices}", "n"
        )
    if options.ending.max_tokens == 0 and not echo:
        raise RequestError("max_tokens 0 needs echo true; otherwise it must be at least 1", "max_tokens")
    if echo and options.is_streamed and body.logprobs is not None:
        raise UnsupportedFieldError("echo with logprobs is not supported in a stream; send stream false", "echo")
    if echo and body.logprobs is not None:
        options = with_prompt_scores(options, body.logprobs)
    return CompletionRequest(body.model, prompts, echo, body.add_special_tokens is not False, options)


def with_prompt_scores(options: Options, num_logprobs: int) -> Options:
    """The same options with the prompt scored for `echo`."""
    most = max(num_logprobs, options.num_prompt_logprobs or 0)
    return replace(options, sampling=replace(options.sampling, num_prompt_logprobs=most))


def decode(data: bytes, served: frozenset[str], limits: EngineLimits, kind: type[T]) -> T:
    """The served fields of a body as a `kind`, names and types checked."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        check_fields(fields, served)
        for name in {"prompt", "tokens"} & fields.keys():
            check_prompt_size(name, fields[name], most_listed_tokens(fields, limits.effective_context))
        if "input" in fields:
            check_input_size(fields["input"])
        if "messages" in fields:
            check_messages_size(fields["messages"])
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise RequestError("the body is nested too deeply to be a request") from None
    except msgspec.ValidationError as error:
        raise validation_error(str(error)) from None
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None


def most_listed_tokens(fields: Mapping[str, msgspec.Raw], context: int) -> int:
    """How many token ids are read: what the context holds, or more where they need not fit it."""
    may_be_longer = "tokens" in fields or "truncate_prompt_tokens" in fields
    return max(context, MAX_LISTED_TOKENS) if may_be_longer else context


def validation_error(text: str) -> RequestError:
    """Msgspec's complaint as ours: 'Expected `int`, got `str` - at `$.stop[1]`' names the parameter stop[1]."""
    place = re.search(r" - at `\$\.?(.*)`$", text)
    param = place.group(1) if place and place.group(1) else None
    what = text[: place.start()] if place else text
    unknown = re.search(r"(?:unknown|missing required) field `(.*)`$", what)
    if unknown:
        param = f"{param}.{unknown.group(1)}" if param else unknown.group(1)
    message = what.replace("`", "").replace("Object contains", "the object contains").replace("Expected", "expected")
    return RequestError(f"{param}: {message}" if param else message, param)


def chat_logprobs(body: Body) -> int | None:
    """How many alternatives a chat request wants: None without logprobs, else top_logprobs."""
    if body.logprobs is not None and not isinstance(body.logprobs, bool):
        raise RequestError("logprobs must be a boolean here, with top_logprobs beside it", "logprobs")
    if not body.logprobs:
        if body.top_logprobs:
            raise RequestError("top_logprobs needs logprobs true", "top_logprobs")
        return None
    return body.top_logprobs or 0


def chat_turns(messages: Sequence[Message]) -> tuple[ChatTurn, ...]:
    """The messages, each checked, tool calls and their results matched."""
    check_calls_size(messages)
    turns = [chat_turn(message, f"messages[{index}]") for index, message in enumerate(messages)]
    extras = answer_calls([turn.extras for turn in turns])
    return tuple(replace(turn, extras=extra) for turn, extra in zip(turns, extras, strict=True))


def chat_turn(message: Message, param: str) -> ChatTurn:
    """One message as plain text, parts joined."""
    role = ROLES.get(message.role)
    if role is None:
        raise RequestError(
            f"{param}.role must be one of {', '.join(ROLES)}, got {shown(message.role)}", f"{param}.role"
        )
    for name in UNSERVED_MESSAGE_FIELDS:
        if bytes(getattr(message, name)) not in EMPTY_VALUES:
            raise UnsupportedFieldError(f"{param}.{name} is not supported by this server", f"{param}.{name}")
    if isinstance(message.content, list):
        texts = [part_text(part, f"{param}.content[{index}]") for index, part in enumerate(message.content)]
        return ChatTurn(role, "".join(texts), message_extras(message, param))
    if message.content is None and role != "assistant":
        raise RequestError(f"{param}.content is missing", f"{param}.content")
    return ChatTurn(role, message.content or "", message_extras(message, param))


def part_text(part: ContentPart, param: str) -> str:
    """The text of a part; anything but text is refused by name."""
    if part.type != "text":
        raise UnsupportedFieldError(f"{param}: {shown(part.type)} parts are not supported; send text", param)
    if part.text is None:
        raise RequestError(f"{param}.text is missing", f"{param}.text")
    return part.text


def parse_prompts(
    prompt: str | list[str | int | list[int]] | None, vocab_size: int, param: str = "prompt"
) -> tuple[Prompt, ...]:
    """The prompts of a request (`param` names them): text, texts, token ids, or lists of token ids."""
    if prompt is None:
        raise RequestError(f"{param} is missing", param)
    if isinstance(prompt, str):
        return (prompt,)
    if not prompt:
        raise RequestError(f"{param} must hold at least one text or token id", param)
    if not isinstance(prompt[0], int):
        check_length(prompt, MAX_PROMPTS, param, "prompts")
    token_ids = tuple(item for item in prompt if isinstance(item, int))
    if len(token_ids) == len(prompt):
        check_token_ids(token_ids, vocab_size, param)
        return (token_ids,)
    if token_ids or len({type(item) for item in prompt}) > 1:
        raise RequestError(f"{param} mixes texts and token ids; send one kind", param)
    return tuple(
        item if isinstance(item, str) else listed_prompt(item, vocab_size, f"{param}[{index}]")
        for index, item in enumerate(prompt)
        if not isinstance(item, int)
    )


def listed_prompt(token_ids: list[int], vocab_size: int, param: str) -> tuple[int, ...]:
    """One prompt given as token ids."""
    if not token_ids:
        raise RequestError(f"{param} must hold at least one token id", param)
    check_token_ids(token_ids, vocab_size, param)
    return tuple(token_ids)
