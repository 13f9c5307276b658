"""Histories with calls, and tools, reach the prompt whatever the template was written for."""

import json
from typing import Any

import pytest

from paceline.engine.contract import EngineLimits
from paceline.server.protocol import ChatRequest, parse_chat
from paceline.text.template import ChatTemplate
from paceline.text.tool_arguments import ToolArguments, parse_arguments
from paceline.text.tool_prompt import fitted

LIMITS = EngineLimits(4096, 4096, 16, 4, 1000, "none", 1)
TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "Today's weather", "parameters": {"type": "object"}},
}
NATIVE = (
    "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}"
)
PLAIN = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def request(messages: list[dict[str, Any]], **fields: Any) -> ChatRequest:
    return parse_chat(json.dumps({"model": "m", "messages": messages, **fields}).encode(), LIMITS)


def rendered(source: str, asked: ChatRequest) -> str:
    template = ChatTemplate(source, "", "")
    conversation = asked.conversation
    messages = [{"role": turn.role, "content": turn.content, **turn.extras} for turn in conversation.turns]
    given, tools = fitted(template, messages, conversation.tools or None)
    return template.render(given, True, tools)


def history(arguments: object) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        {"role": "user", "content": "How warm?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
    ]


def test_tools_are_given_to_a_template_that_knows_them() -> None:
    prompt = rendered(NATIVE, request(history("{}"), tools=[TOOL]))
    assert prompt.startswith(json.dumps(TOOL) + "[user]")
    assert '<tool_call>{"name": "weather", "arguments": {}}</tool_call>' in prompt


def test_tools_are_left_out_when_none_may_be_called() -> None:
    assert rendered(NATIVE, request(history("{}"), tools=[TOOL], tool_choice="none")).startswith("[user]")


def test_a_template_without_tools_gets_them_as_text() -> None:
    messages = [{"role": "system", "content": "Be brief."}, *history('{"city": "Zürich"}')]
    messages[2]["content"] = "I look."
    prompt = rendered(PLAIN, request(messages, tools=[TOOL]))
    assert prompt.startswith("[system]Be brief.\n\n# Tools\n")
    assert f"<tools>\n{json.dumps(TOOL)}\n</tools>" in prompt
    assert prompt.endswith(
        '[user]How warm?[assistant]I look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n'
        "</tool_call>[user]<tool_response>\n7\n</tool_response>"
    )
    assert rendered(PLAIN, request([{"role": "user", "content": "a"}], tools=[TOOL])).startswith("[system]# Tools\n")


def test_results_of_parallel_calls_make_one_turn() -> None:
    messages = history("{}")
    messages[1]["tool_calls"] += [{"id": "c2", "function": {"name": "weather"}}]
    messages.append({"role": "tool", "tool_call_id": "c2", "content": "8"})
    assert rendered(PLAIN, request(messages)).endswith(
        "[user]<tool_response>\n7\n</tool_response>\n<tool_response>\n8\n</tool_response>"
    )


def test_a_result_carries_the_name_of_its_call() -> None:
    assert rendered("{{ messages[-1].name }}{{ messages[-1].tool_calls }}", request(history("{}"))) == "weather"


def test_thoughts_of_earlier_answers_are_given_to_the_template() -> None:
    messages = [{"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}, {"role": "user", "content": "a"}]
    assert rendered("{{ messages[0].reasoning_content }}", request(messages)) == "Hm."


ARGUMENTS = '{"city": "Zürich", "days": [1, 2.5, null]}'


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ a }}", ARGUMENTS),
        ("{{ 'x' + a }}", "x" + ARGUMENTS),
        ("{{ a + 'x' }}", ARGUMENTS + "x"),
        ("{{ 'x' ~ a ~ 'y' }}", f"x{ARGUMENTS}y"),
        ("{{ a | tojson }}", ARGUMENTS),
        ("{{ a if a is string else a | tojson }}", ARGUMENTS),
        ("{{ a | string }}{{ a is mapping }}", ARGUMENTS + "True"),
        ("{{ a | safe }}", ARGUMENTS),
        ("{{ a | trim }}", ARGUMENTS),
        ("{% for key, value in a.items() %}{{ key }}={{ value }};{% endfor %}", "city=Zürich;days=[1, 2.5, None];"),
        ("{% for key in a %}{{ key }}={{ a[key] }};{% endfor %}", "city=Zürich;days=[1, 2.5, None];"),
        ("{{ a.city }}{{ 'city' in a }}{{ a | length }}", "ZürichTrue2"),
    ],
)
def test_arguments_serve_as_mapping_and_as_text(source: str, expected: str) -> None:
    arguments = parse_arguments(json.dumps(json.loads(ARGUMENTS)))
    assert ChatTemplate(source, "", "").render([], True, None, a=arguments) == expected


def test_arguments_that_are_no_object_are_refused() -> None:
    assert parse_arguments(" ") == ToolArguments()
    for text in ("{oops", "[1]", "null", "NaN", '{"a": NaN}', "[" * 10**5, '{"a": ' * 10**4):
        with pytest.raises(ValueError):
            parse_arguments(text)
