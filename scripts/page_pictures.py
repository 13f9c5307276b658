"""Takes the pictures of the page in docs/images: a real server, a real chat, a real browser.

Needs the development tools (`make lint` installs them) and a Chromium. Use: .venv/bin/python scripts/page_pictures.py
"""

import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from paceline.bench.png import find_browser

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
MODEL = "smollm2-135m"
READY = "ready on "
QUESTION = "Write a Python function that tells whether a number is even."
ANSWER_TIMEOUT_MS = 60_000
STOP_TIMEOUT_S = 10
# File → how the browser shows the page.
PICTURES = {
    "page-desktop.png": {"viewport": {"width": 1100, "height": 720}, "color_scheme": "light"},
    "page-phone.png": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "dark",
        "device_scale_factor": 1.5,
        "is_mobile": True,
        "has_touch": True,
    },
}


def start_server() -> tuple["subprocess.Popen[str]", str]:
    """A ready server on a free port, and the page's address."""
    command = [sys.executable, "-m", "paceline.cli", "serve", MODEL, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith(READY):
            return server, line.removeprefix(READY).strip().removesuffix("v1")
    raise OSError(f"the server ended with status {server.wait()} before it was ready")


def take_picture(browser: Browser, url: str, target: Path) -> None:
    """Chat once, greedily so that the text is always the same, and write what is seen."""
    context = browser.new_context(**PICTURES[target.name])
    page = context.new_page()
    page.goto(url)
    page.locator("#state[data-state=ready]").wait_for()
    if not page.get_by_label("Temperature").is_visible():
        page.get_by_text("Settings").click()
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Max tokens").fill("160")
    if PICTURES[target.name].get("is_mobile"):
        page.get_by_text("Settings").click()
    page.get_by_label("Message").fill(QUESTION)
    page.get_by_role("button", name="Send").click()
    page.get_by_role("button", name="Copy").wait_for(timeout=ANSWER_TIMEOUT_MS)
    page.screenshot(path=target)
    context.close()
    print(f"wrote {target}")


def main() -> int:
    """Entry point."""
    path = find_browser()
    if path is None:
        print("no Chromium on this machine: apt-get install chromium", file=sys.stderr)
        return 1
    server, url = start_server()
    try:
        with sync_playwright() as driver:
            # Chromium has no sandbox for root, whom containers run as; it only opens our own page.
            browser = driver.chromium.launch(executable_path=path, chromium_sandbox=os.geteuid() != 0)
            for name in PICTURES:
                take_picture(browser, url, IMAGES / name)
            browser.close()
    finally:
        server.terminate()
        server.wait(STOP_TIMEOUT_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
