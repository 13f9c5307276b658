"""The page's browser: a Chromium of this machine, skipped without one; never one that a package downloads."""

import os
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, sync_playwright

from paceline.bench.png import find_browser
from page_visit import Visit


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser a file of tests: its event loop may not meet those of other tests."""
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    # Chromium has no sandbox for root, whom containers run as; it only opens our own page.
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Visit]]:
    """Opens the page of a server. At the end, no script failed, no policy refused anything, no other host was asked."""
    visits: list[tuple[str, Visit]] = []

    def open_page(url: str, **options: Any) -> Visit:
        root = url.removesuffix("/v1")
        opened = Visit(browser.new_context(**options).new_page())
        opened.page.on("console", lambda said: opened.complaints.append(f"{said.type}: {said.text}"))
        opened.page.on("pageerror", lambda error: opened.complaints.append(f"uncaught: {error}"))
        opened.page.on("request", lambda request: opened.hosts.add(urlsplit(request.url).netloc))
        opened.page.goto(root)
        visits.append((urlsplit(root).netloc, opened))
        return opened

    yield open_page
    for host, opened in visits:
        opened.page.context.close()
        assert opened.hosts == {host}
        # The browser notes every answer that is an error; tests of those expect them.
        assert [text for text in opened.complaints if not text.startswith("error: Failed to load resource")] == []
