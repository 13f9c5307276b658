"""How the page is seen and reached: on a phone, by keyboard, in both colour schemes, without motion."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from page_visit import Visit
from running_server import RunningServer
from scripted_text import TURN_END_ID, byte_ids

Visitor = Callable[..., Visit]


def test_it_fits_a_phone(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    text = "```\n" + "wide " * 60 + "\n```\n" + "unbroken" * 40
    server = start_server({"served_model_names": ["a-model-name-" * 8]}, script=[*byte_ids(text), TURN_END_ID])
    opened = visit(server.url, viewport={"width": 360, "height": 700}, has_touch=True, is_mobile=True)
    opened.shows("Ready")
    opened.page.get_by_label("Message").press_sequentially("a")
    opened.page.get_by_label("Message").press("Enter")
    expect(opened.page.get_by_label("Message")).to_have_value("a\n")
    opened.page.get_by_text("Settings").tap()
    expect(opened.page.get_by_label("Seed")).to_be_visible()
    opened.page.get_by_text("Settings").tap()
    opened.page.get_by_role("button", name="Send").tap()
    expect(opened.last.get_by_role("button", name="Copy")).to_be_in_viewport()
    for name in ("Message", "Model"):
        expect(opened.page.get_by_label(name)).to_be_in_viewport(ratio=1)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 360
    assert opened.last.locator("pre").evaluate("code => code.scrollWidth > code.clientWidth")


def test_the_keyboard_reaches_everything(server: RunningServer, visit: Visitor) -> None:
    opened = visit(server.url, viewport={"width": 1200, "height": 800})
    opened.shows("Ready")
    expect(opened.page.get_by_label("Message")).to_be_focused()
    opened.answer("go on")
    opened.page.get_by_label("Message").fill("more")
    opened.page.locator("#model").focus()
    reached = []
    for _ in range(12):
        reached.append(opened.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        opened.page.keyboard.press("Tab")
    settings = ["Settings", "system", "temperature", "max-tokens", "seed"]
    assert reached == ["model", *settings, "log", "Copy", "Try again", "message", "clear", "send"]


def test_the_focus_stays_where_hands_are(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    opened = visit(start_server(step_s=0.02).url)
    opened.shows("Ready")
    opened.page.get_by_label("Message").fill("go on")
    opened.page.get_by_role("button", name="Send").press("Enter")
    expect(opened.page.get_by_role("button", name="Stop")).to_be_focused()
    expect(opened.last.locator(".answer")).to_contain_text("five")
    opened.page.keyboard.press("Enter")
    expect(opened.last.get_by_text("Stopped.")).to_be_visible()
    expect(opened.page.get_by_label("Message")).to_be_focused()
    opened.page.get_by_role("button", name="Clear").press("Enter")
    expect(opened.page.get_by_label("Message")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(server: RunningServer, visit: Visitor, scheme: str) -> None:
    opened = visit(server.url, color_scheme=scheme)
    opened.shows("Ready")
    read = "name => getComputedStyle(document.documentElement).getPropertyValue(name)"
    behind = {
        "page": ("ink", "quiet", "accent", "worst", "alarm"),
        "panel": ("ink", "quiet", "accent"),
        "question": ("ink",),
        "accent": ("on-accent",),
    }
    for back, inks in behind.items():
        for ink in inks:
            assert contrast(*(opened.page.evaluate(read, f"--{name}") for name in (ink, back))) >= 4.5, (ink, back)
    assert contrast(*(opened.page.evaluate(read, f"--{name}") for name in ("page", "ink"))) >= 10
    # Signs without text need 3 to 1 (WCAG 2.2, 1.4.11).
    for sign in ("field-line", "good", "busy", "bar", "worst"):
        assert contrast(*(opened.page.evaluate(read, f"--{name}") for name in (sign, "panel"))) >= 3, sign


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2 between two colours written #rrggbb."""
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    channels = [int(color.strip()[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_nothing_moves_for_those_who_asked_for_that(start_server: Callable[..., RunningServer], visit: Visitor) -> None:
    url = start_server(step_s=3.0).url
    for choice, animation in (("no-preference", "breathe"), ("reduce", "none")):
        opened = visit(url, reduced_motion=choice)
        opened.shows("Ready")
        opened.ask("go on")
        caret = opened.last.locator(".answer").evaluate("answer => getComputedStyle(answer, '::after').animationName")
        assert caret == animation
