"""Chat templates: from messages to the one string a model was trained to continue.

The template comes out of the model file and alone decides where turns begin and end and whether a beginning token is
written, so its result is tokenized without added special tokens. Templates are hostile until proven otherwise; see
`sandbox.py` for what they may do. What a template raises by itself reaches the user as the text of a RequestError.
"""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2.exceptions import TemplateError, TemplateSyntaxError

from paceline.errors import CheckpointError, RequestError
from paceline.text.budget import BudgetExceededError
from paceline.text.folder_tokenizer import read_object, read_text
from paceline.text.sandbox import MeteredEnvironment
from paceline.text.tokenizer import Tokenizer
from paceline.text.tool_formats import TemplateTools

# What a template gets from us, and what callers of other template engines pass beside its variables.
RESERVED_NAMES = frozenset(
    {
        "messages",
        "tools",
        "add_generation_prompt",
        "bos_token",
        "eos_token",
        "chat_template",
        "continue_final_message",
        "tokenize",
    }
)
MARK_BYTES = 16
# Several times the longest published template; compiling takes time in proportion.
MAX_TEMPLATE_CHARS = 1 << 17
Message = Mapping[str, object]


class TemplateRaisedError(Exception):
    """`raise_exception(...)` of a template: the conversation is not one its model knows."""


class ChatTemplate:
    """One model's chat template, compiled. `source` is None for a model that has none: rendering then says so."""

    def __init__(
        self, source: str | None, bos_token: str, eos_token: str, now: Callable[[], datetime] = datetime.now
    ) -> None:
        """Compile. Raises CheckpointError for a template that is too long or not valid Jinja."""
        self.source = source
        names = {
            "bos_token": bos_token,
            "eos_token": eos_token,
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: now().strftime(form),
        }
        self._template = None if source is None else _compile(source, names)
        self.tools = TemplateTools.of(source)

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, object]] | None = None,
        /,
        **variables: object,
    ) -> str:
        """The prompt of a conversation. A message without content, or with null, has empty content.

        Raises RequestError when there is no template, a variable's name is reserved, the template refuses the
        conversation or fails on it, or needs more than its budget of work and time (at most about 1 s).
        """
        if self._template is None:
            raise RequestError(
                "this model has no chat template; start the server with --chat-template, or use /v1/completions",
                "messages",
            )
        for name in variables:
            if name in RESERVED_NAMES or name in self._template.globals:
                raise RequestError(
                    f"{name!r} is set by the server and can't be overridden", f"chat_template_kwargs.{name}"
                )
        given = {
            **variables,
            "messages": [{**message, "content": _content(message)} for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return "".join(self._template.root_render_func(self._template.new_context(given)))
        except TemplateRaisedError as error:
            raise RequestError(str(error), "messages") from None
        except BudgetExceededError as error:
            raise RequestError(
                f"the model's chat template needs {error} for this conversation, and was stopped; "
                "start the server with another --chat-template",
                "messages",
            ) from None
        except Exception as error:  # a template is a foreign program: whatever it trips over is its failure
            raise RequestError(f"the model's chat template failed on this conversation: {error}", "messages") from None

    def render_open(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, object]] | None = None, /, **variables: object
    ) -> str:
        """The prompt of a conversation whose last message is still being written: it ends where that content ends.

        A mark that nobody can know is put there before rendering, so that the place is found whatever the texts hold.
        Raises RequestError as `render` does, and when the template does not show the last message.
        """
        mark = secrets.token_hex(MARK_BYTES)
        last = {**messages[-1], "content": f"{_content(messages[-1])}{mark}"}
        prompt, found, _ = self.render([*messages[:-1], last], False, tools, **variables).rpartition(mark)
        if not found:
            raise RequestError(
                "the model's chat template does not show the last message as it is, so it can't be continued",
                "continue_final_message",
            )
        return prompt


def gguf_template(metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template in a GGUF file's metadata."""
    source = metadata.get("tokenizer.chat_template")
    if source is not None and not isinstance(source, str):
        raise CheckpointError(f"tokenizer.chat_template must be a string, got {type(source).__name__}")
    return ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token)


def folder_template(folder: Path, tokenizer: Tokenizer) -> ChatTemplate:
    """The chat template of a checkpoint folder: chat_template.jinja, or `chat_template` of tokenizer_config.json."""
    source: Any = read_text(folder / "chat_template.jinja")
    if source is None:
        source = read_object(folder / "tokenizer_config.json").get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if source is not None and not isinstance(source, str):
        raise CheckpointError(f"chat_template in {folder / 'tokenizer_config.json'} must be a string")
    return ChatTemplate(source, tokenizer.bos_token, tokenizer.eos_token)


def _compile(source: str, names: Mapping[str, Any]) -> Any:
    if len(source) > MAX_TEMPLATE_CHARS:
        raise CheckpointError(f"the chat template has {len(source)} characters; at most {MAX_TEMPLATE_CHARS} are read")
    environment = MeteredEnvironment({"tojson": _tojson, "safe": str})
    environment.globals.update(names)
    try:
        return environment.from_string(environment.rewritten(source))
    except TemplateSyntaxError as error:
        raise CheckpointError(f"the chat template is wrong in line {error.lineno}: {error.message}") from None
    except (TemplateError, SyntaxError, RecursionError, MemoryError, ValueError) as error:
        raise CheckpointError(f"the chat template can't be compiled: {error}") from None


def _content(message: Message) -> object:
    content = message.get("content")
    return "" if content is None else content


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRaisedError(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models were trained to read it: no HTML escapes (unlike Jinja's own), characters as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
