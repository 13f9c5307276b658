"""Tools for models whose chat template knows none: described in the system message, calls and results as text.

The format is that of Hermes and Qwen, the most widely trained one. Models that never saw it call badly, but a forced
call (`tool_choice`) still gives arguments that fit the schema.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from paceline.text.template import ChatTemplate, Message

Tool = Mapping[str, object]

INSTRUCTIONS = """\
# Tools

You can call functions. These are their signatures, one JSON object a line:
<tools>
{tools}
</tools>

To call a function, answer with a JSON object of its name and arguments inside <tool_call> tags, one for each call:
<tool_call>
{{"name": "<function name>", "arguments": {{<arguments>}}}}
</tool_call>

Results come back inside <tool_response> tags."""


def fitted(
    template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Tool] | None
) -> tuple[Sequence[Message], Sequence[Tool] | None]:
    """Messages and tools as the template can render them: as they are, or as text as far as it does not know them."""
    if not template.tools.renders_calls:
        messages = with_calls_as_text(messages)
    if tools and not template.tools.renders_tools:
        return with_tool_prompt(messages, tools), None
    return messages, tools


def with_tool_prompt(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """The messages with the tools described at the end of the system message, or in one of their own."""
    text = INSTRUCTIONS.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if messages and messages[0]["role"] == "system":
        first = messages[0]
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def with_calls_as_text(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls inside the assistant's content, and results as the user's turns, neighbours in one."""
    written: list[Message] = []
    was_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        if not is_result:
            written.append(_with_calls(message))
        elif was_result:
            last = written.pop()
            written.append({**last, "content": f"{last['content']}\n{_result(message)}"})
        else:
            written.append({"role": "user", "content": _result(message)})
        was_result = is_result
    return written


def _result(message: Message) -> str:
    return f"<tool_response>\n{message['content']}\n</tool_response>"


def _with_calls(message: Message) -> Message:
    calls = message.get("tool_calls")
    if not calls:
        return message
    assert isinstance(calls, list), "calls come parsed"
    parts = [message["content"]] if message["content"] else []
    return {"role": message["role"], "content": "\n".join([*map(str, parts), *_call_texts(calls)])}


def _call_texts(calls: Sequence[Mapping[str, Mapping[str, object]]]) -> Iterator[str]:
    for call in calls:
        function = {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        yield f"<tool_call>\n{json.dumps(function, ensure_ascii=False)}\n</tool_call>"
