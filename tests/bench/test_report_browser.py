"""The report in a real browser: what it plots is what the result file says.

Needs Debian's `chromium` (or a Chrome) on this machine; no network.
"""

import re
import struct
from pathlib import Path

import pytest
from synthetic_results import hol, sweep

from paceline.bench.jsonl import read_result, write_result
from paceline.bench.measures import Spread, Window, summarize
from paceline.bench.png import browse, find_browser
from paceline.bench.report import figures_of, write_pngs, write_report
from paceline.bench.report_figure import views_of

BROWSER = find_browser()
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine: apt-get install chromium")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A sweep's JSONL, and the report made of what was read back from it."""
    folder = tmp_path_factory.mktemp("report")
    results, report = folder / "sweep.jsonl", folder / "sweep.html"
    write_result(results, sweep())
    write_report(report, read_result(results))
    return results, report


@pytest.fixture(scope="module")
def drawn(files: tuple[Path, Path]) -> tuple[str, str]:
    """The page after its script ran, and the browser's log."""
    assert BROWSER is not None
    flags = ("--dump-dom", "--virtual-time-budget=20000", "--enable-logging=stderr")
    done = browse(BROWSER, files[1].resolve().as_uri(), *flags)
    return done.stdout, done.stderr


def attributes(dom: str, element_id: str) -> dict[str, str]:
    """The attributes of the element with an id."""
    tag = re.search(rf'<div [^>]*\bid="{re.escape(element_id)}"[^>]*>', dom)
    assert tag is not None, element_id
    return dict(re.findall(r'([\w-]+)="([^"]*)"', tag.group()))


@needs_browser
@pytest.mark.parametrize("name", ["ttft", "itl"])
def test_the_plotted_knee_is_the_knee_of_the_jsonl(files: tuple[Path, Path], drawn: tuple[str, str], name: str) -> None:
    result = read_result(files[0])
    point = next(point for point in result.header.points if point.label == result.header.knee)
    window = Window(point.window_start_s, point.window_end_s)
    summary = summarize(result.records_of(point), window, result.header.targets)
    spread = summary.ttft_s if name == "ttft" else summary.itl_s
    assert isinstance(spread, Spread)
    plotted = attributes(drawn[0], f"frontier-{name}")
    assert plotted["data-knee-label"] == "concurrency 8"
    assert float(plotted["data-knee-x"]) == pytest.approx(summary.output_tokens_per_s, rel=1e-9)
    assert float(plotted["data-knee-y"]) == pytest.approx(spread.p99 * 1000, rel=1e-9)


@needs_browser
def test_every_figure_is_drawn_and_nothing_is_refused(files: tuple[Path, Path], drawn: tuple[str, str]) -> None:
    dom, log = drawn
    result = read_result(files[0])
    figures = figures_of(result, views_of(result))
    assert f'data-drawn="{len(figures)}"' in dom
    for figure in figures:
        assert "js-plotly-plot" in attributes(dom, figure.figure_id)["class"]
    # Errors of scripts and of the page's policy appear as CONSOLE lines.
    assert "CONSOLE" not in log


@needs_browser
def test_figures_become_pngs_of_their_size(tmp_path: Path) -> None:
    result, report = hol({"whole": 1.5, "chunked": 0.06}), tmp_path / "hol.html"
    write_report(report, result)
    written = write_pngs(report, result, tmp_path / "png", only=("stall",))
    assert [path.name for path in written] == ["stall.png"]
    data = written[0].read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 900
    assert height > 500
    # An empty page of that size takes under 10 kB.
    assert 20_000 < len(data) < 200_000


def test_without_a_browser_there_are_no_pngs_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert write_pngs(tmp_path / "report.html", sweep(), tmp_path / "png") == []
    assert not (tmp_path / "png").exists()
