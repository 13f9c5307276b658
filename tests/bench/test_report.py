"""The report says what the result says, and needs nothing but itself."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import plotly.graph_objects
import pytest
from rich.console import Console
from synthetic_results import compare, goodput, hol, prefix, sweep

from paceline.bench.measures import Window, summarize
from paceline.bench.merge import merge_results
from paceline.bench.record import Outcome, TokenCount
from paceline.bench.report import figures_of, render_report
from paceline.bench.report_figure import Figure, views_of
from paceline.bench.result import Result
from paceline.bench.table import Progress, print_result
from paceline.errors import ConfigError

RESULTS = {
    "sweep": sweep(),
    "hol": hol({"whole": 1.5, "chunked": 0.06}),
    "prefix": prefix(),
    "compare": compare(),
    "goodput": goodput(),
}
HOSTILE = '</script><script>alert(1)</script><img src="http://evil.example/x">'


class Elements(HTMLParser):
    """The elements of a page, its JSON scripts and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.attributes: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, object] = {}
        self.text = ""
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = (tag, dict(attrs))
        self.attributes.append(self._open)

    def handle_endtag(self, tag: str) -> None:
        self._open = ("", {})

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open
        if attributes.get("type") == "application/json":
            self.scripts[str(attributes["id"])] = json.loads(data)
        elif tag not in ("script", "style"):
            self.text += data


def page_of(result: Result) -> Elements:
    return Elements(render_report(result))


@pytest.mark.parametrize("name", RESULTS)
def test_every_figure_is_valid_plotly_and_has_its_place_on_the_page(name: str) -> None:
    result = RESULTS[name]
    page = page_of(result)
    figures = figures_of(result, views_of(result))
    assert figures
    places = {attributes.get("id") for tag, attributes in page.attributes if tag == "div"}
    for figure in figures:
        plotly.graph_objects.Figure({"data": list(figure.traces), "layout": figure.layout})
        assert figure.figure_id in places
    drawn = page.scripts["figures"]
    assert isinstance(drawn, list)
    assert [one["id"] for one in drawn] == [figure.figure_id for figure in figures]


@pytest.mark.parametrize("name", RESULTS)
def test_nothing_is_loaded_from_anywhere(name: str) -> None:
    page = page_of(RESULTS[name])
    loading = [
        (tag, a) for tag, a in page.attributes if {"src", "href", "action", "srcset"} & a.keys() or tag == "link"
    ]
    assert not loading
    policies = [a["content"] for tag, a in page.attributes if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies == [
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
    ]


def test_text_from_outside_stays_text() -> None:
    result = sweep()
    point = replace(result.header.points[0], warnings=(HOSTILE,), limited_by=HOSTILE)
    failed = replace(result.records[0], outcome=Outcome.FAILED, error=HOSTILE)
    header = replace(
        result.header, points=(point, *result.header.points[1:]), command=HOSTILE, server={"name": HOSTILE}
    )
    page = page_of(Result(header, (failed, *result.records[1:])))
    assert not [tag for tag, _ in page.attributes if tag == "img"]
    assert len([tag for tag, _ in page.attributes if tag == "script"]) == 4
    assert page.text.count(HOSTILE) == 4
    figures = json.dumps(page.scripts["figures"])
    assert "<img" not in figures
    assert "&lt;img" in figures


def test_the_knee_of_the_page_is_the_knee_of_the_records() -> None:
    result = sweep()
    point = next(point for point in result.header.points if point.label == result.header.knee)
    window = Window(point.window_start_s, point.window_end_s)
    summary = summarize(result.records_of(point), window, result.header.targets)
    assert summary.ttft_s
    assert summary.itl_s
    assert page_of(result).scripts["knee"] == {
        "label": "concurrency 8",
        "output_tokens_per_s": summary.output_tokens_per_s,
        "ttft_p50_ms": summary.ttft_s.p50 * 1000,
        "ttft_p99_ms": summary.ttft_s.p99 * 1000,
        "itl_p50_ms": summary.itl_s.p50 * 1000,
        "itl_p99_ms": summary.itl_s.p99 * 1000,
    }


def test_the_stall_plot_marks_the_longest_gap_beside_the_long_prompt() -> None:
    result = hol({"whole": 1.5, "chunked": 0.06})
    stall = figures_of(result, views_of(result))[0]
    assert stall.figure_id == "stall"
    assert "whole: 1.50 s; chunked: 60.00 ms" in stall.caption
    shapes = stall.layout["shapes"]
    assert isinstance(shapes, list)
    assert [round(shape["x1"], 6) for shape in shapes] == [1.6, 0.16]
    # Equal axes, or the two couldn't be compared by eye.
    first, second = stall.layout["yaxis"], stall.layout["yaxis2"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert first["range"] == second["range"]
    # The long prompt's own gaps are no stream's.
    assert len(stall.traces) == 8


def test_a_gap_far_from_the_long_prompt_is_no_stall() -> None:
    result = hol({"whole": 0.5})
    times = [0.1, 0.9, *(1.0 + 0.02 * i for i in range(100))]
    count = (1,) * len(times)
    lone = replace(result.records[0], event_times_s=tuple(times), event_tokens=count, read_sizes=count)
    stall = figures_of(*(r := Result(result.header, (lone, result.records[-1])), views_of(r)))[0]
    assert "whole: 20.00 ms" in stall.caption


def test_a_distribution_ends_at_the_slowest_and_starts_at_nothing() -> None:
    result = sweep()
    views = views_of(result)
    figure = next(figure for figure in figures_of(result, views) if figure.figure_id == "cdf-ttft")
    for view, trace in zip(views, figure.traces, strict=True):
        x, y = trace["x"], trace["y"]
        assert isinstance(x, list)
        assert isinstance(y, list)
        assert view.summary.ttft_s
        assert (y[0], y[-1]) == (0.0, 1.0)
        assert x[-1] == pytest.approx(view.summary.ttft_s.max * 1000, abs=1e-3)
        assert x == sorted(x)


def figure_of(result: Result, figure_id: str) -> Figure:
    return next(figure for figure in figures_of(result, views_of(result)) if figure.figure_id == figure_id)


def test_rounds_of_one_variant_share_a_curve() -> None:
    assert [trace["name"] for trace in figure_of(compare(), "cdf-ttft").traces] == [
        "A, concurrency 8",
        "B, concurrency 8",
    ]


def test_the_prefix_plot_shows_the_median_of_the_rounds_and_their_range() -> None:
    cached = figure_of(prefix(), "prefix-ttft").traces[0]
    assert cached["name"] == "cache TTFT p50"
    assert cached["x"] == [0.0, 0.5, 0.9]
    assert cached["y"] == pytest.approx([200.0, 100.0, 20.0])
    bars = cached["error_y"]
    assert isinstance(bars, dict)
    assert bars["array"] == pytest.approx([20.0, 10.0, 2.0])
    assert bars["arrayminus"] == pytest.approx([20.0, 10.0, 2.0])


def test_the_goodput_plot_stars_the_largest_rate_that_met_the_targets() -> None:
    line, star = figure_of(goodput(), "share").traces
    assert line["x"] == [2.0, 4.0, 8.0, 10.0]
    assert line["y"] == [1.0, 1.0, 1.0, 0.0]
    assert (star["x"], star["y"]) == ([8.0], [1.0])


def test_merged_results_keep_every_number_and_say_whose_it_is() -> None:
    whole, chunked = hol({"streams": 1.5}), hol({"streams": 0.06})
    merged = merge_results({"whole": whole, "chunked": chunked})
    assert [point.label for point in merged.header.points] == ["whole: streams", "chunked: streams"]
    assert [view.summary for view in views_of(merged)] == [
        view.summary for r in (whole, chunked) for view in views_of(r)
    ]
    assert "whole: streams: 1.50 s; chunked: streams: 60.00 ms" in figure_of(merged, "stall").caption
    assert merge_results({"alone": whole}) is whole


def test_merged_sweeps_have_a_line_for_each_server() -> None:
    names = [trace["name"] for trace in figure_of(merge_results({"A": sweep(), "B": sweep()}), "frontier-ttft").traces]
    assert names == ["A TTFT p50", "A TTFT p99", "B TTFT p50", "B TTFT p99"]


def test_results_of_two_kinds_are_not_merged() -> None:
    with pytest.raises(ConfigError, match="B: is a hol and can't be shown with a sweep"):
        merge_results({"A": sweep(), "B": hol({"whole": 1.0})})


def test_doubts_come_before_the_numbers() -> None:
    result = sweep()
    first = result.header.points[0]
    header = replace(
        result.header, points=(replace(first, warnings=("THE CLIENT WAS LATE",)), *result.header.points[1:])
    )
    records = (
        replace(result.records[0], token_count=TokenCount.ESTIMATE),
        replace(result.records[1], outcome=Outcome.TIMED_OUT),
        *result.records[2:],
    )
    html = render_report(Result(header, records))
    alarm = html.index('role="alert"')
    assert alarm < html.index("exact command") < html.index("<table>")
    for warning in ("THE CLIENT WAS LATE", "the server sends no usage", "1 of 3 requests were not completed"):
        assert alarm < html.index(f"concurrency 1: {warning}") < html.index("exact command")
    assert 'role="alert"' not in render_report(result)


def test_the_terminal_table_fits_and_marks_the_knee() -> None:
    for width in (80, 200):
        console = Console(width=width)
        with console.capture() as captured:
            print_result(console, sweep())
        lines = captured.get().splitlines()
        assert max(map(len, lines)) <= width
        knee = next(line for line in lines if "(knee)" in line)
        assert "concurrency 8" in knee
        assert "26.00 ms" in knee
        assert "34.00 ms" in knee


def test_the_terminal_shows_ratios_with_their_intervals() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        print_result(console, compare())
    assert "output tokens/s: B, concurrency 8 / A, concurrency 8 1.210× (1.170 to 1.260, 3 pairs)" in " ".join(
        captured.get().split()
    )


def test_the_progress_line_counts_what_was_lost() -> None:
    result = sweep()
    progress = Progress(Console(), "concurrency 8", num_expected=4)
    progress.on_record(result.records[0])
    progress.on_record(replace(result.records[1], outcome=Outcome.REJECTED, event_times_s=()))
    assert "2/4 requests" in progress.line().plain
    assert "1 not completed" in progress.line().plain


def test_every_percentile_is_on_the_page() -> None:
    text = page_of(sweep()).text
    for row in ("concurrency 8: TTFT", "concurrency 8: worst-10 % ITL", "concurrency 8: E2E from sending", "p99.9"):
        assert row in text


@pytest.mark.parametrize("name", RESULTS)
def test_a_server_that_answers_nothing_still_gets_its_report(name: str) -> None:
    result = RESULTS[name]
    refused = tuple(
        replace(one, outcome=Outcome.REJECTED, event_times_s=(), event_tokens=(), read_sizes=(), output_tokens=0)
        for one in result.records
    )
    for records in ((), refused):
        silent = Result(result.header, records)
        with_console = Console(width=80)
        with with_console.capture() as captured:
            print_result(with_console, silent)
        said = " ".join(captured.get().split())
        assert "were not completed" in said or "no request was recorded" in said
        assert "Read this before the numbers" in page_of(silent).text
