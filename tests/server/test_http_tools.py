"""Tool calls over HTTP, by the official client. The engine says what the user's message says."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from running_server import RunningServer, launch, wait_until_ready
from scripted_text import FIRST_BYTE_ID, FIRST_WORD_ID, WORDS

# The scripted engine repeats the turn from <|im_start|> (1) to <|im_end|> (2), without "user\n".
PARROT = {"parrot": [1, 2, 5]}
TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}CALLS<|im_end|>\n{% endfor %}"
END = "<|im_start|>assistant\n"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "Today's.", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "now"}},
]
ULM = '{"city": "Ulm é \\"{}\\""}'
CALLS = (
    'Let me look.<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\n'
    f'<tool_call>\n{{"name": "weather", "arguments": {ULM}}}\n</tool_call>'
)


@pytest.fixture(scope="module")
def parrot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    log = tmp_path_factory.mktemp("parrot") / "log"
    running = wait_until_ready(launch({}, PARROT | {"requests_log": str(log)}))
    running.summary.append(str(log))
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(parrot: RunningServer) -> Iterator[openai.OpenAI]:
    with parrot.openai() as client:
        yield client


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], "tools": TOOLS, **fields}


def last_request(log: Path) -> dict[str, Any]:
    """What the engine was asked last, with the prompt as text."""
    request: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    data = base64.b64decode(request["prompt"])
    ids = [int.from_bytes(data[start : start + 4], "little") for start in range(0, len(data), 4)]
    return request | {"prompt": b"".join(map(piece_bytes, ids)).decode()}


def piece_bytes(token_id: int) -> bytes:
    if token_id >= FIRST_WORD_ID:
        return WORDS[token_id - FIRST_WORD_ID].encode()
    return bytes([token_id - FIRST_BYTE_ID]) if token_id >= FIRST_BYTE_ID else b"|"


def test_calls_are_found_in_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**asked(CALLS))
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me look.", "tool_calls")
    calls = choice.message.tool_calls
    assert calls is not None
    assert [(call.type, call.function.name, call.function.arguments) for call in calls if call.type == "function"] == [
        ("function", "now", "{}"),
        ("function", "weather", ULM),
    ]
    assert len({call.id for call in calls}) == 2
    assert all(call.id.startswith("call_") for call in calls)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(CALLS.encode()) + 1


def test_content_is_null_when_there_are_only_calls(client: openai.OpenAI) -> None:
    text = CALLS.removeprefix("Let me look.")
    assert client.chat.completions.create(**asked(text)).choices[0].message.content is None
    with client.chat.completions.stream(**asked(text)) as stream:
        assert stream.get_final_completion().choices[0].message.content is None


def test_b049_a_stream_gives_each_call_its_index_id_and_name_once(client: openai.OpenAI) -> None:
    content, reasons = "", []
    calls: dict[int, list[Any]] = {}
    for chunk in client.chat.completions.create(**asked(CALLS), stream=True):
        choice = chunk.choices[0]
        content += choice.delta.content or ""
        reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or []:
            calls.setdefault(call.index, []).append(call)
    assert content == "Let me look."
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    assert list(calls) == [0, 1]
    for pieces, name, arguments in zip(calls.values(), ("now", "weather"), ("{}", ULM), strict=True):
        assert [piece.function.name for piece in pieces] == [name] + [None] * (len(pieces) - 1)
        assert [bool(piece.id) for piece in pieces] == [True] + [False] * (len(pieces) - 1)
        assert "".join(piece.function.arguments for piece in pieces) == arguments
    assert len(calls[1]) > 10, "arguments are streamed while they are written"


def test_the_client_s_own_assembly_agrees(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(**asked(CALLS), stream_options={"include_usage": True}) as stream:
        streamed = stream.get_final_completion()
    whole = client.chat.completions.create(**asked(CALLS))
    for answer in (streamed, whole):
        message = answer.choices[0].message
        assert message.content == "Let me look."
        assert [call.function.arguments for call in message.tool_calls or []] == ["{}", ULM]  # type: ignore[union-attr]
    assert streamed.usage == whole.usage


@pytest.mark.parametrize("text", ["<tool_call>oops</tool_call>", '<tool_call>{"name": "now"', "no call", "<tool_"])
def test_what_is_no_call_is_content(client: openai.OpenAI, text: str) -> None:
    choice = client.chat.completions.create(**asked(text)).choices[0]
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (text, None, "stop")
    deltas = [chunk.choices[0].delta for chunk in client.chat.completions.create(**asked(text), stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == text


@pytest.mark.parametrize("fields", [{"tools": None}, {"tools": []}, {"tool_choice": "none"}])
def test_without_tools_tags_are_content(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    choice = client.chat.completions.create(**asked(CALLS) | fields).choices[0]
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == (CALLS, None, "stop")


def test_only_one_call_unless_calls_are_parallel(client: openai.OpenAI) -> None:
    calls = client.chat.completions.create(**asked(CALLS), parallel_tool_calls=False).choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == 1


def test_several_choices_have_their_own_calls(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**asked(CALLS), n=3)
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or []]
    assert len(set(ids)) == 6
    with client.chat.completions.stream(**asked(CALLS), n=3) as stream:
        streamed = stream.get_final_completion()
    assert [len(choice.message.tool_calls or []) for choice in streamed.choices] == [2, 2, 2]


def test_a_call_cut_by_max_tokens_ends_with_length(client: openai.OpenAI) -> None:
    length = len(CALLS[: CALLS.index("Ulm") + 3].encode())
    choice = client.chat.completions.create(**asked(CALLS), max_tokens=length).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls is not None
    assert [call.function.arguments for call in choice.message.tool_calls] == ["{}", '{"city": "Ulm']  # type: ignore[union-attr]


def test_logprobs_are_those_of_every_token(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(CALLS), logprobs=True).choices[0].logprobs
    assert whole is not None
    assert bytes(byte for token in whole.content or [] for byte in token.bytes or []) == CALLS.encode()
    tokens: list[Any] = []
    for chunk in client.chat.completions.create(**asked(CALLS), logprobs=True, stream=True):
        logprobs = chunk.choices[0].logprobs
        tokens += (logprobs.content or []) if logprobs else []
    assert tokens == whole.content


def test_a_conversation_with_calls_goes_on(parrot: RunningServer, client: openai.OpenAI) -> None:
    message = client.chat.completions.create(**asked(CALLS)).choices[0].message
    assert message.tool_calls is not None
    messages: list[Any] = [
        {"role": "user", "content": "How warm?"},
        message.model_dump(exclude_none=True),
        *({"role": "tool", "tool_call_id": call.id, "content": "7"} for call in message.tool_calls),
        {"role": "user", "content": "So?"},
    ]
    answer = client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS)
    assert answer.choices[0].message.content == "So?"
    prompt = last_request(Path(parrot.summary[-1]))["prompt"]
    assert prompt.count("Ulm é") == 1
    assert f'<tool_call>\n{{"name": "weather", "arguments": {ULM}}}\n</tool_call>' in prompt
    assert "<tool_response>\n7\n</tool_response>\n<tool_response>\n7\n</tool_response>" in prompt


def test_a_named_function_is_forced(parrot: RunningServer, client: openai.OpenAI) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    answer = client.chat.completions.create(**asked(ULM, tool_choice=choice)).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    (call,) = answer.message.tool_calls or []
    assert (call.function.name, call.function.arguments) == ("weather", ULM)  # type: ignore[union-attr]
    grammar = last_request(Path(parrot.summary[-1]))["sampling"]["grammar"]
    assert (grammar["kind"], json.loads(grammar["text"])) == ("json_schema", PARAMETERS)


def test_any_function_is_forced(parrot: RunningServer, client: openai.OpenAI) -> None:
    text = f'[{{"name": "weather", "arguments": {ULM}}}, {{"name": "now", "arguments": {{}}}}]'
    with client.chat.completions.stream(**asked(text, tool_choice="required")) as stream:
        answer = stream.get_final_completion().choices[0]
    assert answer.finish_reason == "tool_calls"
    assert [call.function.arguments for call in answer.message.tool_calls or []] == [ULM, "{}"]
    schema = json.loads(last_request(Path(parrot.summary[-1]))["sampling"]["grammar"]["text"])
    assert [call["properties"]["name"] for call in schema["items"]["anyOf"]] == [{"const": "weather"}, {"const": "now"}]


FUNCTION = {"name": "f"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "a"}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"items": value}
    return value


REFUSED = [
    ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"function": {"name": ""}}]}, "tools[0].function.name"),
    ({"tools": [{"function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"function": {"name": "f" * 65}}]}, "tools[0].function.name"),
    ({"tools": [{"function": FUNCTION}] * 2}, "tools[1].function.name"),
    ({"tools": [{"function": FUNCTION | {"parameters": []}}]}, "tools[0].function.parameters"),
    ({"tools": [{"function": FUNCTION | {"parameters": {"type": "string"}}}]}, "tools[0].function.parameters"),
    ({"tools": [{"function": FUNCTION | {"parameters": deep(70)}}]}, "tools[0].function.parameters"),
    ({"tools": [{"function": FUNCTION | {"mood": 1}}]}, "tools[0].function.mood"),
    ({"tools": [{"function": {"name": f"f{index}"}} for index in range(129)]}, "tools"),
    ({"tools": [{"function": FUNCTION | {"description": "x" * 600_000}}]}, "tools"),
    ({"tools": [{"function": FUNCTION}], "response_format": {"type": "json_object"}}, "response_format"),
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.function"),
    ({"tool_choice": {"type": "allowed_tools"}}, "tool_choice.type"),
    ({"tool_choice": 3}, "tool_choice"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"messages": [USER, {"role": "tool", "content": "7"}]}, "messages[1].tool_call_id"),
    ({"messages": [USER, {"role": "tool", "content": "7", "tool_call_id": "c1"}]}, "messages[1].tool_call_id"),
    ({"messages": [USER | {"tool_calls": [CALL]}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [CALL | {"id": 7}]}]}, "messages[0].tool_calls[0].id"),
    ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "tool_calls": [CALL] * 129}]}, "messages[0].tool_calls"),
    ({"messages": [{"role": "assistant", "reasoning_content": 3}]}, "messages[0].reasoning_content"),
]


@pytest.mark.parametrize(("change", "param"), REFUSED)
def test_a_wrong_tool_field_is_named(parrot: RunningServer, change: dict[str, Any], param: str) -> None:
    response = parrot.post("chat/completions", {"model": "scripted", "messages": [USER], **change})
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert param in error["message"]
    assert len(error["message"]) < 300


B009_TEMPLATES = {
    "mapping": "{% for c in m.tool_calls %}{% for k, v in c.function.arguments.items() %}{{ k }}: {{ v }}{% endfor %}"
    "{% endfor %}",
    "string": "{% for c in m.tool_calls %}{{ c.function.name + '(' + c.function.arguments + ')' }}{% endfor %}",
}


@pytest.mark.parametrize("kind", B009_TEMPLATES)
def test_b009_arguments_reach_templates_as_string_or_mapping(kind: str, tmp_path: Path) -> None:
    template, log = tmp_path / "template", tmp_path / "log"
    refusing = "{% if messages[0].content == 'no' %}{{ raise_exception('not this conversation') }}{% endif %}"
    template.write_text(refusing + TURNS.replace("CALLS", B009_TEMPLATES[kind]) + END)
    server = wait_until_ready(launch({"chat_template": str(template)}, {"requests_log": str(log)}))

    def ask(arguments: object, text: str = "How warm?") -> Any:
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
        messages = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "7"},
        ]
        return server.post("chat/completions", {"model": "scripted", "messages": messages, "max_tokens": 1})

    try:
        spellings = ['{"city": "Zürich"}', json.dumps({"city": "Zürich"}), {"city": "Zürich"}]
        for arguments in spellings:
            assert ask(arguments).status_code == 200
            prompt = last_request(log)["prompt"]
            assert prompt.count("Zürich") == 1
            assert ("city: Zürich" if kind == "mapping" else 'weather({"city": "Zürich"})') in prompt
            assert "\\" not in prompt
            assert '""' not in prompt
            assert "None" not in prompt
        assert ask("").status_code == 200
        assert ("weather({})" in last_request(log)["prompt"]) == (kind == "string")
        refused = ask("{oops")
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "messages[1].tool_calls[0].function.arguments"
        refused = ask("{}", "no")
        assert (refused.status_code, refused.json()["error"]["message"]) == (400, "not this conversation")
    finally:
        server.stop()


def test_mistral_s_calls_get_ids_its_template_takes_back(tmp_path: Path) -> None:
    template = tmp_path / "template"
    speaks_mistral = "{{ tools[:0] or '' }}{{ '[TOOL_CALLS]' if messages[0].tool_calls }}"
    template.write_text(TURNS.replace("CALLS", "") + END + speaks_mistral)
    server = wait_until_ready(launch({"chat_template": str(template)}, PARROT))
    try:
        text = '[TOOL_CALLS][{"name": "now", "arguments": {}}]'
        (call,) = server.post("chat/completions", asked(text)).json()["choices"][0]["message"]["tool_calls"]
        assert len(call["id"]) == 9
        assert call["id"].isalnum()
    finally:
        server.stop()


def test_tools_of_a_format_nobody_knows_are_refused_unless_forced(tmp_path: Path) -> None:
    template = tmp_path / "template"
    template.write_text(TURNS.replace("CALLS", "") + END + "{{ tools[:0] or '' }}")
    server = wait_until_ready(launch({"chat_template": str(template)}, PARROT))
    try:
        refused = server.post("chat/completions", asked("{}"))
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")
        forced = server.post(
            "chat/completions", asked("{}", tool_choice={"type": "function", "function": {"name": "now"}})
        )
        assert forced.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"
    finally:
        server.stop()
