"""PNGs of a report's figures: the page itself, drawn by a Chromium of this machine, so that they can't differ."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
TIMEOUT_S = 60.0
QUIET = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_browser() -> str | None:
    """Path of a Chromium, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def browse(browser: str, url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Open a page of ours headless, under a profile that is thrown away; return what the browser printed."""
    # Chromium has no sandbox for root, whom containers run as; it only opens the report we wrote.
    sandbox = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with tempfile.TemporaryDirectory(prefix="paceline-browser-") as profile:
        return subprocess.run(
            [browser, *QUIET, *sandbox, f"--user-data-dir={profile}", *flags, url],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )


def export_png(browser: str, report: Path, figure_id: str, target: Path, size: tuple[int, int]) -> None:
    """Write one figure of a report as a PNG of `size` (width, height) pixels; raise OSError when that fails."""
    url = f"{report.resolve().as_uri()}?only={figure_id}"
    width, height = size
    flags = (f"--screenshot={target.resolve()}", f"--window-size={width},{height}", "--virtual-time-budget=10000")
    try:
        done = browse(browser, url, *flags)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{browser} took more than {TIMEOUT_S:.0f} s to draw {figure_id}") from error
    if not target.exists():
        raise OSError(f"{browser} wrote no {target}: {done.stderr.strip()[-300:]}")
