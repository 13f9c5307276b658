"""The page in a real browser, with real server processes: it chats, times, stops and recovers, and lets no text become
HTML.
"""

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import playwright.sync_api
import pytest
from playwright.sync_api import expect

from paceline import __version__
from page_visit import Visit
from running_server import RunningServer, launch
from scripted_text import SCRIPT_TEXT, TURN_END_ID, byte_ids

Visitor = Callable[..., Visit]

QUESTION = "What does HTTP stand for?"
MARKUP = """<script>document.title = "broken"</script><img src="x" onerror="document.title = 'broken'"><b>&amp;</b>"""


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def number(text: str) -> float:
    """The value of a figure as the page shows it, in its unit."""
    return float(text.split()[0])


def wait_until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_it_chats_with_the_model_and_shows_the_answer_as_it_comes(smol: RunningServer, visit: Visitor) -> None:
    opened = visit(smol.url)
    opened.shows("Ready")
    expect(opened.page.locator("#version")).to_have_text(__version__)
    expect(opened.page.get_by_label("Model")).to_have_value("smollm2-135m")
    opened.page.get_by_label("System prompt").fill("You are terse.")
    opened.page.get_by_label("Temperature").fill("0")
    opened.page.get_by_label("Max tokens").fill("128")
    opened.ask(QUESTION)
    seen, answer = [""], opened.last.locator(".answer")
    while answer.get_attribute("aria-busy") == "true":
        seen.append(answer.text_content() or "")
    messages = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": QUESTION}]
    body = {"model": "smollm2-135m", "messages": messages, "temperature": 0, "max_tokens": 128}
    expected = smol.post("chat/completions", body).json()
    assert answer.text_content() == expected["choices"][0]["message"]["content"]
    assert len(set(seen)) >= 4, "the text came in one piece"
    assert all(later.startswith(earlier) for earlier, later in pairwise(seen))
    assert opened.fact("tokens") == str(expected["usage"]["completion_tokens"])
    assert number(opened.fact("ttft")) > 0
    assert number(opened.fact("pace")) > 1
    assert opened.complaints == []


def test_the_history_and_the_settings_are_sent(smol: RunningServer, visit: Visitor) -> None:
    opened = visit(smol.url)
    opened.shows("Ready")
    opened.page.get_by_label("Temperature").fill("0.8")
    opened.page.get_by_label("Max tokens").fill("12")
    opened.page.get_by_label("Seed").fill("7")
    first = opened.answer("Name a colour.")
    second = opened.answer("And another?")
    messages = [
        {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "And another?"},
    ]
    body = {"model": "smollm2-135m", "messages": messages, "temperature": 0.8, "max_tokens": 12, "seed": 7}
    assert second == smol.post("chat/completions", body).json()["choices"][0]["message"]["content"]


def test_the_figures_are_those_of_the_stream(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    opened = visit(start_server(step_s=0.05).url)
    opened.shows("Ready")
    opened.page.get_by_label("Max tokens").fill("30")
    opened.answer("go on")
    assert opened.fact("tokens") == "30"
    assert 50 <= number(opened.fact("ttft")) < 1000
    assert 8 < number(opened.fact("pace")) < 20.5
    # A character of three bytes, one a token, is shown when it is whole: three steps after the one before.
    assert 145 <= number(opened.fact("worst-gap")) < 1000
    expect(opened.last.get_by_text("Ended at the limit of tokens.")).to_be_visible()
    gaps = opened.last.get_by_role("img")
    words = re.fullmatch(
        r"Gaps between tokens: median (\d+) ms, worst (\d+) ms", gaps.get_attribute("aria-label") or ""
    )
    assert words is not None
    assert 45 <= int(words[1]) < int(words[2]) == number(opened.fact("worst-gap"))
    # Of the 30 tokens, five hold the first bytes of a character: 25 pieces of text, 24 gaps.
    assert [(path.get_attribute("d") or "").count("M") for path in gaps.locator("path").all()] == [23, 1]


@pytest.mark.parametrize("way", ["button", "Escape", "clear"])
def test_a_stopped_answer_stops_in_the_engine(
    start_server: Callable[..., RunningServer], visit: Visitor, journal: Path, way: str
) -> None:
    opened = visit(start_server(step_s=0.02, journal=str(journal)).url)
    opened.shows("Ready")
    opened.page.get_by_label("Max tokens").fill("4000")
    opened.ask("go on")
    expect(opened.last.locator(".answer")).to_contain_text("eight")
    if way == "Escape":
        opened.page.keyboard.press("Escape")
    else:
        opened.page.get_by_role("button", name="Stop" if way == "button" else "Clear").click()
    wait_until(lambda: journal.read_text().endswith("0 1\n"))
    assert len(journal.read_text().splitlines()) < 2000
    opened.page.get_by_label("Max tokens").fill("5")
    if way == "clear":
        expect(opened.page.get_by_text("Ask something.")).to_be_visible()
        expect(opened.page.locator(".exchange")).to_have_count(0)
    else:
        expect(opened.last.get_by_text("Stopped.")).to_be_visible()
        assert (opened.last.locator(".answer").text_content() or "").startswith(" five, six, seven, eight")
        expect(opened.page.get_by_role("button", name="Send")).to_be_visible()
    assert opened.answer("and then?") == " five, six, sev"
    assert journal.read_text().count(" 1\n") == 1


def test_no_text_becomes_html(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    text = f"{MARKUP}\n```html\n{MARKUP}\n```\n{MARKUP}"
    serve = {"served_model_names": [MARKUP]}
    opened = visit(start_server(serve, script=[*byte_ids(text), TURN_END_ID]).url)
    opened.shows("Ready")
    opened.page.get_by_label("System prompt").fill(MARKUP)
    assert opened.answer(MARKUP) == f"{MARKUP}\n{MARKUP}\n{MARKUP}"
    assert opened.last.locator(".question").text_content() == MARKUP
    assert opened.last.locator(".by").text_content() == MARKUP
    assert opened.page.locator("#log").locator("script, img, b").count() == 0
    expect(opened.page).to_have_title("Paceline")
    assert opened.complaints == []


def test_the_browser_itself_refuses_markup_and_inline_script(server: RunningServer, visit: Visitor) -> None:
    opened = visit(server.url)
    opened.shows("Ready")
    with pytest.raises(playwright.sync_api.Error, match="TrustedHTML"):
        opened.page.evaluate("document.body.innerHTML = '<b>markup</b>'")
    picture = "document.body.append(Object.assign(document.createElement('img'), {src: 'https://other.test/a'}))"
    with opened.page.expect_console_message(lambda said: "other.test" in said.text and "violates" in said.text):
        opened.page.evaluate(picture)
    opened.complaints.clear()
    opened.hosts.discard("other.test")


def test_code_and_line_breaks_stay(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    text = "One.\n\nTwo:\n\n```python\nfor x in y:\n    print(`x`)\n```\n\nThen `x`:\n```\nlast\n```"
    clipboard = ["clipboard-read", "clipboard-write"]
    opened = visit(start_server(script=[*byte_ids(text), TURN_END_ID]).url, permissions=clipboard)
    opened.shows("Ready")
    opened.answer("code?")
    blocks = opened.last.locator(".answer > *")
    assert blocks.evaluate_all("blocks => blocks.map(({tagName, textContent}) => [tagName, textContent])") == [
        ["P", "One.\n\nTwo:\n"],
        ["PRE", "for x in y:\n    print(`x`)\n"],
        ["P", "Then `x`:\n"],
        ["PRE", "last\n"],
    ]
    opened.last.get_by_role("button", name="Copy").click()
    expect(opened.page.locator("#announcer")).to_have_text("Copied.")
    assert opened.page.evaluate("navigator.clipboard.readText()") == text


def test_reasoning_is_shown_apart_from_the_answer(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    thoughts = f"Why {MARKUP}?\nSo."
    script = [*byte_ids(f"<think>\n{thoughts}\n</think>\n\nYes."), TURN_END_ID]
    opened = visit(start_server({"reasoning_parser": "qwen3"}, script=script, step_s=0.005).url)
    opened.shows("Ready")
    opened.ask("why?")
    expect(opened.last.get_by_text("Why <script>")).to_be_visible()
    expect(opened.last.locator(".answer")).to_have_text("Yes.")
    assert opened.last.locator(".thought").text_content() == thoughts
    expect(opened.last.locator(".thought")).to_be_hidden()
    opened.last.get_by_text("Reasoning").click()
    expect(opened.last.locator(".thought")).to_be_visible()


def test_an_answer_is_copied_where_the_clipboard_is_closed(
    start_server: Callable[..., RunningServer], visit: Visitor
) -> None:
    # As over plain HTTP: what is granted here is to read only.
    opened = visit(start_server().url, permissions=["clipboard-read"])
    opened.shows("Ready")
    opened.page.get_by_label("Max tokens").fill("3")
    opened.answer("go on")
    opened.last.get_by_role("button", name="Copy").click()
    expect(opened.page.locator("#announcer")).to_have_text("Copied.")
    assert opened.page.evaluate("navigator.clipboard.readText()").strip() == "five, six"


def test_a_refused_request_shows_the_servers_message_and_can_be_tried_again(
    start_server: Callable[..., RunningServer], visit: Visitor
) -> None:
    opened = visit(start_server(context=200).url)
    opened.shows("Ready")
    opened.page.get_by_label("Max tokens").fill("5000")
    opened.ask("go on")
    expect(opened.last.locator(".trouble")).to_contain_text("do not fit the context of 200 tokens")
    opened.page.get_by_label("Max tokens").fill("3")
    opened.last.get_by_role("button", name="Try again").click()
    expect(opened.last.locator(".answer")).to_have_text(" five, six")
    expect(opened.page.locator(".exchange")).to_have_count(1)


def test_a_key_is_asked_for_kept_in_the_tab_and_sent(
    start_server: Callable[..., RunningServer], visit: Visitor
) -> None:
    opened = visit(start_server({"api_keys": ["se-cret"]}).url)
    opened.shows("Key needed")
    expect(opened.page.get_by_label("API key")).to_be_focused()
    opened.page.keyboard.type("wrong")
    opened.page.keyboard.press("Enter")
    expect(opened.page.get_by_text("the API key is missing or wrong")).to_be_visible()
    opened.page.get_by_label("API key").fill("se-cret")
    opened.page.get_by_role("button", name="Use key").click()
    opened.shows("Ready")
    expect(opened.page.get_by_label("API key")).to_be_hidden()
    assert opened.answer("go on").startswith(SCRIPT_TEXT)
    opened.page.reload()
    opened.shows("Ready")
    assert opened.page.evaluate("[localStorage.length, document.cookie]") == [0, ""]


def test_it_says_that_the_model_loads_and_goes_on_by_itself(visit: Visitor, port: int) -> None:
    process = launch({"port": port}, {"load_s": 4.0})
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: is_served(port))
        opened = visit(url)
        expect(opened.page.get_by_text("the model is loading")).to_be_visible()
        opened.page.get_by_label("Message").fill("go on")
        expect(opened.page.get_by_role("button", name="Send")).to_be_disabled()
        opened.shows("Ready")
        expect(opened.page.get_by_text("the model is loading")).to_be_hidden()
        opened.page.get_by_role("button", name="Send").click()
        expect(opened.last.locator(".answer")).to_contain_text("five")
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)


def is_served(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_it_outlives_the_server(visit: Visitor, port: int, start_server: Callable[..., RunningServer]) -> None:
    server = start_server({"port": port}, step_s=0.02)
    opened = visit(server.url)
    opened.shows("Ready")
    opened.page.get_by_label("Max tokens").fill("3")
    assert server.stop() == 0
    opened.ask("go on")
    expect(opened.last.locator(".trouble")).to_have_text("the connection to the server broke")
    opened.shows("No connection")
    expect(opened.page.get_by_text("can't be reached")).to_be_visible()
    start_server({"port": port, "served_model_names": ["another"]}, step_s=0.02)
    opened.shows("Ready")
    expect(opened.page.get_by_label("Model")).to_have_value("another")
    opened.last.get_by_role("button", name="Try again").click()
    expect(opened.last.locator(".answer")).to_contain_text("five, six")


def test_an_engine_that_dies_in_an_answer_is_told(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    server = start_server(step_s=0.02)
    opened = visit(server.url)
    opened.shows("Ready")
    opened.ask("go on")
    expect(opened.last.locator(".answer")).to_contain_text("eight")
    pid = server.process.pid
    (engine,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    os.kill(int(engine), signal.SIGKILL)
    expect(opened.last.locator(".trouble")).not_to_be_empty()
    expect(opened.last.locator(".answer")).to_contain_text("eight")
    opened.shows("Not ready")
    opened.shows("Ready")
    opened.page.get_by_label("Max tokens").fill("3")
    opened.last.get_by_role("button", name="Try again").click()
    expect(opened.last.locator(".answer")).to_have_text(" five, six")
