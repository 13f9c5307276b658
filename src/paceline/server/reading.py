"""How the text of a chat answer is to be read: for thoughts and tool calls, or, without either, as it is."""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, replace

from paceline.config import ServeConfig
from paceline.errors import RequestError
from paceline.server.options import Options
from paceline.server.protocol import ChatRequest
from paceline.server.tool_request import ToolUse
from paceline.text.answer_events import CallParser
from paceline.text.forced_calls import ForcedList, NamedCall
from paceline.text.message_reader import MessageReader
from paceline.text.model_text import ModelText
from paceline.text.thinking import END_TAG, THINK_TAG, ThinkSplitter
from paceline.text.tokenizer import Tokenizer
from paceline.text.tool_formats import MARKERS, ToolFormat, call_parser

# Enough tokens to hold the tag a template ends its prompt with.
TAIL_TOKENS = 16
ID_CHARACTERS = string.ascii_letters + string.digits
# Mistral's templates take ids of exactly this form back.
MISTRAL_ID_CHARS = 9
ID_CHARS = 24


@dataclass(frozen=True, slots=True)
class Reading:
    """What to look for in each choice. `starts_thinking` None: there are no thoughts to look for."""

    tool_use: ToolUse | None
    tool_format: ToolFormat | None
    starts_thinking: bool | None
    shows_thoughts: bool

    def new_reader(self) -> MessageReader:
        """A reader for one choice."""
        thinking = None if self.starts_thinking is None else ThinkSplitter(self.starts_thinking)
        return MessageReader(thinking, None if self.tool_use is None else self._new_parser(self.tool_use))

    def new_call_id(self) -> str:
        """An id for one call."""
        if self.tool_format is ToolFormat.MISTRAL:
            return random_text(MISTRAL_ID_CHARS)
        return f"call_{random_text(ID_CHARS)}"

    def options(self, options: Options, tokenizer: Tokenizer) -> Options:
        """The options with what this reading needs to see of the text."""
        markers = MARKERS[self.tool_format] if self.tool_use is not None and self.tool_format is not None else ()
        if self.starts_thinking is not None:
            markers = (*markers, THINK_TAG, END_TAG)
        return replace(
            options,
            kept_special_ids=tokenizer.special_ids_of(markers),
            keeps_tokens=self.starts_thinking is not None,
        )

    def _new_parser(self, use: ToolUse) -> CallParser:
        if use.forced is not None:
            return ForcedList() if use.forced.name is None else NamedCall(use.forced.name)
        assert self.tool_format is not None, "checked when the reading was made"
        return call_parser(self.tool_format, use.names, None if use.is_parallel else 1)


def chat_reading(
    config: ServeConfig, text: ModelText, request: ChatRequest, token_ids: Sequence[int]
) -> Reading | None:
    """How to read the answer to a prompt; None when its text is the content. Raises RequestError for tools of a model
    whose calls we can't read.
    """
    use = request.tool_use
    if use is None and config.reasoning_parser is None:
        return None
    name = config.tool_call_parser
    tool_format = text.template.tools.call_format if name is None else ToolFormat(name)
    is_forced = use is not None and use.forced is not None
    if use is not None and tool_format is None and not is_forced:
        raise RequestError(
            "tools: the chat template's format of calls is not known here; start the server with --tool-call-parser, "
            "or force a call with tool_choice",
            "tools",
        )
    # A forced call begins at once: its grammar leaves no room for thoughts.
    thinks = config.reasoning_parser is not None and not is_forced
    return Reading(
        tool_use=use,
        tool_format=tool_format,
        starts_thinking=starts_thinking(config.reasoning_parser, text.tokenizer, token_ids) if thinks else None,
        shows_thoughts=request.includes_reasoning,
    )


def starts_thinking(parser: str | None, tokenizer: Tokenizer, token_ids: Sequence[int]) -> bool:
    """Whether an answer without an opening tag begins with thoughts: as the prompt's end says, else the parser."""
    tail = tokenizer.decode(token_ids[-TAIL_TOKENS:], skip_special=False).rstrip()
    if tail.endswith((THINK_TAG, END_TAG)):
        return tail.endswith(THINK_TAG)
    return parser == "deepseek_r1"


def random_text(num_chars: int) -> str:
    """Random letters and digits."""
    return "".join(secrets.choice(ID_CHARACTERS) for _ in range(num_chars))
