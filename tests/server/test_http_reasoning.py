"""Thoughts over HTTP. The engine says what the user's message says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from running_server import RunningServer, launch, wait_until_ready

PARROT = {"parrot": [1, 2, 5]}
CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
TOOLS: list[Any] = [{"type": "function", "function": {"name": "now"}}]
THOUGHTS = "<think>\nWhy é? So.\n</think>"


@pytest.fixture(scope="module")
def thinker() -> Iterator[RunningServer]:
    running = wait_until_ready(launch({"reasoning_parser": "qwen3"}, PARROT))
    yield running
    assert running.stop() == 0


@pytest.fixture
def client(thinker: RunningServer) -> Iterator[openai.OpenAI]:
    with thinker.openai() as client:
        yield client


def asked(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "scripted", "messages": [{"role": "user", "content": text}], **fields}


def parts(message: Any) -> tuple[str | None, str | None]:
    return message.content, getattr(message, "reasoning_content", None)


def test_thoughts_are_apart_from_the_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**asked(THOUGHTS + "\n\nYes."))
    assert parts(answer.choices[0].message) == ("Yes.", "Why é? So.")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == len(THOUGHTS.encode())


def test_they_are_streamed_apart(client: openai.OpenAI) -> None:
    content, thoughts, usage = "", [], None
    for chunk in client.chat.completions.create(
        **asked(THOUGHTS + "\n\nYes."), stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            if piece := getattr(choice.delta, "reasoning_content", None):
                assert not content, "thoughts come first"
                thoughts.append(piece)
    assert (content, "".join(thoughts)) == ("Yes.", "Why é? So.")
    assert len(thoughts) > 5
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == len(THOUGHTS.encode())


def test_an_answer_without_thoughts(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**asked("Yes. <think>"))
    assert parts(answer.choices[0].message) == ("Yes. <think>", None)
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    assert answer.usage.completion_tokens_details.reasoning_tokens == 0


def test_thoughts_that_never_end_are_all_there_is(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**asked(THOUGHTS), max_tokens=14)
    assert parts(answer.choices[0].message) == ("", "Why é")
    assert answer.choices[0].finish_reason == "length"


def test_thoughts_before_calls(client: openai.OpenAI) -> None:
    choice = client.chat.completions.create(**asked(THOUGHTS + CALL, tools=TOOLS)).choices[0]
    assert parts(choice.message) == (None, "Why é? So.")
    assert [call.function.name for call in choice.message.tool_calls or []] == ["now"]  # type: ignore[union-attr]
    thought = client.chat.completions.create(**asked(f"<think>{CALL}</think>", tools=TOOLS)).choices[0]
    assert (parts(thought.message), thought.message.tool_calls) == (("", CALL), None)


def test_thoughts_can_be_left_out(client: openai.OpenAI) -> None:
    fields = {"extra_body": {"include_reasoning": False}}
    answer = client.chat.completions.create(**asked(THOUGHTS + "Yes."), **fields)  # type: ignore[arg-type]
    assert parts(answer.choices[0].message) == ("Yes.", None)


def test_a_message_of_ours_is_taken_back(client: openai.OpenAI) -> None:
    message = client.chat.completions.create(**asked(THOUGHTS + "Yes.")).choices[0].message
    messages: Any = [{"role": "user", "content": "a"}, message.model_dump(), {"role": "user", "content": "b"}]
    assert client.chat.completions.create(model="scripted", messages=messages).choices[0].message.content == "b"


@pytest.mark.parametrize(
    ("ending", "parser", "text", "content", "thoughts"),
    [
        ("<think>\n", "qwen3", "a</think>b", "b", "a"),
        ("<think>\n\n</think>\n\n", "deepseek_r1", "b", "b", None),
        ("", "deepseek_r1", "a</think>b", "b", "a"),
        ("", None, "<think>a</think>b", "<think>a</think>b", None),
    ],
)
def test_the_prompt_s_end_tells_whether_thoughts_have_begun(
    tmp_path: Path, ending: str, parser: str | None, text: str, content: str, thoughts: str | None
) -> None:
    template = tmp_path / "template"
    turns = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    template.write_text(turns + "<|im_start|>assistant\n" + "{{ '" + ending.replace("\n", "\\n") + "' }}")
    server = wait_until_ready(launch({"chat_template": str(template), "reasoning_parser": parser}, PARROT))
    try:
        message = server.post("chat/completions", asked(text)).json()["choices"][0]["message"]
        assert (message["content"], message.get("reasoning_content")) == (content, thoughts)
    finally:
        server.stop()
