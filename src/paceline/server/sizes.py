"""Judges the size of a field from its raw JSON, by counting separators, before it becomes many small objects.

Decoding a megabyte of nested lists takes the event loop's time and half a gigabyte of a hostile client's choosing;
counting bytes takes neither. A quote inside a JSON string is escaped, so a quoted key can't be faked by a text.
"""

import msgspec

from paceline.errors import ContextLengthError, RequestError
from paceline.server.limits import (
    MAX_CONTENT_PARTS,
    MAX_FIELD_BYTES,
    MAX_INPUT_IDS,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_TOOLS_BYTES,
)

HEAD_BYTES = 64
WHITESPACE = b" \t\r\n"


def check_size(name: str, raw: msgspec.Raw) -> None:
    """Refuse a field that is longer than any valid value."""
    num_bytes = len(memoryview(raw))
    most = MAX_TOOLS_BYTES if name == "tools" else MAX_FIELD_BYTES
    if num_bytes > most:
        raise RequestError(f"{name} may have at most {most} bytes of JSON, got {num_bytes}", name)


def check_messages_size(raw: msgspec.Raw) -> None:
    """Refuse too many messages, or too many parts of their contents."""
    data = bytes(raw)
    for key, most, what in ((b'"role"', MAX_MESSAGES, "messages"), (b'"type"', MAX_CONTENT_PARTS, "content parts")):
        count = data.count(key)
        if count > most:
            raise RequestError(f"messages may hold at most {most} {what}, got {count}", "messages")


def check_prompt_size(name: str, raw: msgspec.Raw, max_tokens: int) -> None:
    """Refuse a list of token ids with too many of them, or too many lists of them. Texts are counted once decoded."""
    head = bytes(memoryview(raw)[:HEAD_BYTES]).translate(None, WHITESPACE)
    if head.startswith(b"[["):
        num_prompts = bytes(raw).count(b"[") - 1
        if num_prompts > MAX_PROMPTS:
            raise RequestError(f"{name} may hold at most {MAX_PROMPTS} prompts, got {num_prompts}", name)
    elif head[1:2].isdigit():
        num_tokens = bytes(raw).count(b",") + 1
        if num_tokens > max_tokens:
            kind = ContextLengthError if name == "prompt" else RequestError
            raise kind(f"{name} has {num_tokens} token ids; at most {max_tokens} are read; shorten it", name)


def check_input_size(raw: msgspec.Raw) -> None:
    """Refuse an embeddings input of token ids with too many of them. Texts are counted once decoded."""
    head = bytes(memoryview(raw)[:HEAD_BYTES]).translate(None, WHITESPACE)
    if head.startswith(b"[[") or head[1:2].isdigit():
        num_ids = bytes(raw).count(b",") + 1
        if num_ids > MAX_INPUT_IDS:
            raise RequestError(f"input may hold at most {MAX_INPUT_IDS} token ids, got {num_ids}", "input")
