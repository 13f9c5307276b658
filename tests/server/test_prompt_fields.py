"""Fields that decide what the engine gets for a prompt: continued messages, template variables, truncation."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_requests import CONTEXT, Asker, asking
from running_server import RunningServer
from scripted_text import TEMPLATE, byte_ids

NOTED = "{% if note is defined %}[{{ note }}]{% endif %}" + TEMPLATE
SHOUTED = TEMPLATE.replace("m.content", "m.content | upper")
OWNED = (
    "messages tools add_generation_prompt bos_token eos_token chat_template continue_final_message tokenize "
    "raise_exception strftime_now range namespace dict"
).split()
FORGETFUL = "{% for m in messages[:-1] %}{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asker]:
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "noted.jinja").write_text(NOTED)
    with asking(folder, chat_template=str(folder / "noted.jinja")) as ask:
        yield ask


def turn(role: str, text: str) -> list[int]:
    return [*open_turn(role, text), 2, *byte_ids("\n")]


def open_turn(role: str, text: str) -> list[int]:
    return [1, *byte_ids(f"{role}\n{text}")]


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("text", ["b", "b ", "a", "", "\n", "<|im", "é", "}}{%"])
def test_the_last_message_is_continued_where_it_ends(ask: Asker, text: str) -> None:
    messages = [said("user", "a"), said("assistant", text)]
    assert list(ask(messages=messages, continue_final_message=True).prompt) == [
        *turn("user", "a"),
        *open_turn("assistant", text),
    ]


def test_whatever_the_last_message_is_it_can_be_continued(ask: Asker) -> None:
    parts = [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]
    for content, text in ((parts, "xy"), (None, "")):
        messages = [said("assistant", content)]
        assert list(ask(messages=messages, continue_final_message=True).prompt) == open_turn("assistant", text)
    messages = [said("user", "a")]
    assert list(ask(messages=messages, continue_final_message=True).prompt) == open_turn("user", "a")
    begun = [*turn("user", "a"), *open_turn("assistant", "")]
    assert list(ask(messages=messages, continue_final_message=False).prompt) == begun


def test_a_continued_message_is_not_begun_anew(server: RunningServer) -> None:
    body = {"model": "scripted", "messages": [said("user", "a")], "continue_final_message": True}
    refused = server.post("chat/completions", body | {"add_generation_prompt": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "continue_final_message")
    assert server.post("chat/completions", body | {"add_generation_prompt": False, "max_tokens": 1}).is_success


def test_a_message_with_calls_is_not_continued(server: RunningServer) -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [said("user", "a"), said("assistant", "x") | {"tool_calls": calls}]
    body = {"model": "scripted", "messages": messages, "continue_final_message": True}
    refused = server.post("chat/completions", body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "continue_final_message")


@pytest.mark.parametrize("source", [SHOUTED, FORGETFUL])
def test_a_message_the_template_does_not_show_as_it_is_can_not_be_continued(
    start_server: Callable[..., RunningServer], tmp_path: Path, source: str
) -> None:
    (tmp_path / "template").write_text(source)
    server = start_server({"chat_template": str(tmp_path / "template")})
    body = {"model": "scripted", "messages": [said("user", "a"), said("assistant", "b")], "max_tokens": 1}
    assert server.post("chat/completions", body).is_success
    refused = server.post("chat/completions", body | {"continue_final_message": True})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "continue_final_message")


def test_template_variables_reach_the_template(ask: Asker) -> None:
    for note, shown in (("n", "[n]"), (7, "[7]"), ([[1]], "[[[1]]]"), (None, "[None]")):
        prompt = list(ask(chat_template_kwargs={"note": note, "unused": {"deep": [[[]]]}}).prompt)
        assert prompt[: len(byte_ids(shown)) + 1] == [*byte_ids(shown), 1]
    plain = list(ask().prompt)
    assert plain == list(ask(chat_template_kwargs={}).prompt) == list(ask(chat_template_kwargs=None).prompt)


@pytest.mark.parametrize("name", OWNED)
@pytest.mark.parametrize("path", ["chat/completions", "tokenize"])
def test_b079_what_the_server_sets_can_not_be_overridden(server: RunningServer, path: str, name: str) -> None:
    body = {"model": "scripted", "messages": [said("user", "a")], "chat_template_kwargs": {name: "x"}}
    refused = server.post(path, body)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, f"chat_template_kwargs.{name}")
    assert name in error["message"]


@pytest.mark.parametrize(
    ("kwargs", "param"),
    [
        ([], "chat_template_kwargs"),
        ("x", "chat_template_kwargs"),
        ({f"v{index}": 1 for index in range(33)}, "chat_template_kwargs"),
        ({"x": "y" * 70_000}, "chat_template_kwargs"),
    ],
    ids=["list", "text", "many", "long"],
)
def test_template_variables_are_bounded(server: RunningServer, kwargs: Any, param: str) -> None:
    for path in ("chat/completions", "tokenize"):
        refused = server.post(
            path, {"messages": [said("user", "a")], "chat_template_kwargs": kwargs, "model": "scripted"}
        )
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_a_deeply_nested_variable_costs_its_sender_an_error(ask: Asker, server: RunningServer) -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(AssertionError, match="nested more than"):
        ask(chat_template_kwargs={"note": deep})
    assert len(ask(chat_template_kwargs={"note": "n"}).prompt) > 0


def test_the_last_tokens_of_a_prompt_are_kept(ask: Asker) -> None:
    ids = list(range(10, 30))
    whole = list(ask(messages=[said("user", "abc")]).prompt)
    for keep in (1, 3, 100):
        assert list(ask(messages=[said("user", "abc")], truncate_prompt_tokens=keep).prompt) == whole[-keep:]
        assert (
            list(ask("completions", prompt="abcdef", truncate_prompt_tokens=keep).prompt) == byte_ids("abcdef")[-keep:]
        )
        assert list(ask("completions", prompt=ids, truncate_prompt_tokens=keep).prompt) == ids[-keep:]
        assert list(ask("completions", prompt=[ids], truncate_prompt_tokens=keep).prompt) == ids[-keep:]


def test_as_many_prompt_tokens_as_fit_are_kept(ask: Asker) -> None:
    ids = [5 + index % 200 for index in range(3000)]
    for wish, room in (({"max_tokens": 10}, 10), ({}, 1), ({"max_tokens": CONTEXT - 1}, CONTEXT - 1)):
        request = ask("completions", prompt=ids, truncate_prompt_tokens=-1, **wish)
        assert list(request.prompt) == ids[-(CONTEXT - room) :]
        assert request.stop.max_tokens == room
    text = "x" * 500
    assert list(ask("completions", prompt=text, truncate_prompt_tokens=-1).prompt) == byte_ids(text)[-(CONTEXT - 1) :]
    chat = ask(messages=[said("user", text)], truncate_prompt_tokens=-1, max_tokens=4)
    assert list(chat.prompt)[-11:] == open_turn("assistant", "")
    assert len(chat.prompt) == CONTEXT - 4


def test_an_echo_shows_what_was_kept(server: RunningServer) -> None:
    body = {"model": "scripted", "prompt": "abcdef", "echo": True, "max_tokens": 1, "logprobs": 0}
    choice = server.post("completions", body | {"truncate_prompt_tokens": 2}).json()["choices"][0]
    assert choice["text"] == "ef five"
    assert choice["logprobs"]["tokens"] == ["e", "f", " five"]


@pytest.mark.parametrize("keep", [0, -2, 2**31, "3", 1.5])
def test_a_wrong_truncation_is_named(server: RunningServer, keep: Any) -> None:
    for path, prompt in (("completions", {"prompt": "a"}), ("chat/completions", {"messages": [said("user", "a")]})):
        refused = server.post(path, {"model": "scripted", "truncate_prompt_tokens": keep} | prompt)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "truncate_prompt_tokens")
