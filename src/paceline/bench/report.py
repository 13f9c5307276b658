"""From a result to its report: chooses what the experiment's reader wants to see first."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from paceline.bench.columns import HEADS, PERCENTILE_HEADS, cells, percentile_rows, written
from paceline.bench.png import export_png, find_browser
from paceline.bench.record import Outcome, TokenCount
from paceline.bench.report_cdf import cdfs
from paceline.bench.report_compare import prefix_figures, ratio_figure
from paceline.bench.report_figure import Figure, Json, View, milliseconds, views_of
from paceline.bench.report_frontier import Mark, frontiers, share_figure
from paceline.bench.report_page import Page, Table, render
from paceline.bench.report_stall import stall_figure
from paceline.bench.report_timeline import timelines
from paceline.bench.result import Experiment, Header, Result, Targets

PNG_WIDTH = 900
PNG_TEXT_HEIGHT = 110
NEEDS_BROWSER = "PNGs need Chromium (apt install chromium) on this machine; the HTML report holds the same plots."
# How the labels of points that repeat a load end.
ROUND = ", round "
# Of the points that one remark is about.
MAX_NAMED = 7
CURVES = (Experiment.SWEEP, Experiment.GOODPUT)


def render_report(result: Result, title: str | None = None, first: Sequence[Figure] = ()) -> str:
    """The HTML of a result. `first`: figures of its own that go before the others."""
    header, views = result.header, views_of(result)
    knee = next((view for view in views if view.point.label == header.knee), None)
    return render(
        Page(
            title=title or f"paceline bench {header.experiment}",
            summary=_summary(header, views),
            command=header.command,
            warnings=warnings_of(views),
            facts=_facts(header),
            table=_table(views, header.knee),
            percentiles=Table(
                PERCENTILE_HEADS, tuple(row for view in views for row in percentile_rows(view.point, view.summary))
            ),
            notes=(*limits_of(views), *cuts_of(views), *client_of(views)),
            figures=(*first, *figures_of(result, views)),
            data={"knee": _knee(knee)} if knee else {},
        )
    )


def write_report(path: Path, result: Result, title: str | None = None, first: Sequence[Figure] = ()) -> None:
    """Write the HTML whole, then give it its name."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(render_report(result, title, first), encoding="utf-8")
    os.replace(partial, path)


def write_pngs(report: Path, result: Result, folder: Path, only: Collection[str] = ()) -> list[Path]:
    """One PNG for each figure of a written report, or for `only` some ids; none where no Chromium is installed (say
    NEEDS_BROWSER). Takes about a second each.
    """
    browser = find_browser()
    if browser is None:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in figures_of(result, views_of(result)):
        if only and figure.figure_id not in only:
            continue
        target = folder / f"{figure.figure_id}.png"
        height = figure.layout["height"]
        assert isinstance(height, int), "every figure says its height in pixels"
        export_png(browser, report, figure.figure_id, target, (PNG_WIDTH, height + PNG_TEXT_HEIGHT))
        written.append(target)
    return written


def figures_of(result: Result, views: Sequence[View]) -> tuple[Figure, ...]:
    """The figures of a result, the one it was made for first."""
    header = result.header
    special = [figure for figure in (stall_figure(views), ratio_figure(header.ratios)) if figure is not None]
    mark = _mark(header)
    if header.experiment is Experiment.GOODPUT:
        special.append(share_figure(views, mark))
    curve = frontiers(views, mark) if header.experiment in CURVES else ()
    return (*special, *curve, *prefix_figures(views), *cdfs(_variants(views)), *timelines(views, header.knee))


def _mark(header: Header) -> Mark | None:
    if header.knee is None:
        return None
    if header.experiment is Experiment.GOODPUT:
        return Mark(header.knee, "goodput", "The star is the largest rate of which enough requests met their targets.")
    return Mark(
        header.knee,
        "knee",
        "The star is the knee, where more load stops buying throughput: the point farthest above the straight "
        "line from the first to the last, of throughput over load.",
    )


def warnings_of(views: Sequence[View]) -> tuple[str, ...]:
    """Every reason to doubt the numbers, with the points it concerns."""
    return _gathered((view, warning) for view in views for warning in (*view.point.warnings, *_doubts(view)))


def _gathered(remarks: Iterable[tuple[View, str]]) -> tuple[str, ...]:
    """Each remark once, with the points it is about."""
    labels: dict[str, list[str]] = {}
    for view, remark in remarks:
        labels.setdefault(remark, []).append(view.point.label)
    return tuple(f"{_enumerated(points)}: {remark}" for remark, points in labels.items())


def _enumerated(labels: Sequence[str]) -> str:
    if len(labels) <= MAX_NAMED:
        return "; ".join(labels)
    return f"{'; '.join(labels[: MAX_NAMED - 1])}; and {len(labels) - MAX_NAMED + 1} more"


def _variants(views: Sequence[View]) -> dict[str, list[View]]:
    """Points that share a curve: the rounds of one variant, which runs in turn with others; otherwise each its own."""
    groups: dict[str, list[View]] = {}
    for view in views:
        groups.setdefault(view.point.label.partition(ROUND)[0], []).append(view)
    return groups


def _doubts(view: View) -> list[str]:
    doubts = []
    num_lost = sum(record.outcome is not Outcome.COMPLETED for record in view.records)
    if num_lost:
        doubts.append(
            f"{num_lost} of {len(view.records)} requests were not completed; they miss every target, and their "
            "latencies are not in the percentiles"
        )
    if view.summary.token_count is TokenCount.ESTIMATE:
        doubts.append(
            "the server sends no usage, so output tokens are estimated by counting events; tokens/s and TPOT are wrong "
            "by as many tokens as it packs into one event"
        )
    if not view.records:
        doubts.append("no request was recorded")
    return doubts


def _summary(header: Header, views: Sequence[View]) -> str:
    num = sum(round(len(view.records) / view.point.kept_share) for view in views)
    loads = "one load" if len(views) == 1 else f"{len(views)} loads"
    return f"{num} requests at {loads}, started {header.started_at}. Targets: {_targets(header.targets)}."


def _targets(targets: Targets) -> str:
    stated = (("TTFT", targets.ttft_s), ("ITL", targets.itl_s), ("E2E", targets.e2e_s))
    return ", ".join(f"{name} ≤ {value * 1000:g} ms" for name, value in stated if value is not None) or "none stated"


def _facts(header: Header) -> Mapping[str, Mapping[str, str]]:
    return {
        "Server": header.server,
        "Workload": header.workload,
        "Machine": header.machine,
        "Versions": header.versions,
    }


def _table(views: Sequence[View], knee: str | None) -> Table:
    rows = tuple(cells(view.point, view.summary) for view in views)
    marked = next((index for index, view in enumerate(views) if view.point.label == knee), None)
    return Table(HEADS, rows, marked)


def limits_of(views: Sequence[View]) -> tuple[str, ...]:
    """Where each point lies on the curve and what limits it."""
    return _gathered((view, view.point.limited_by) for view in views if view.point.limited_by)


def cuts_of(views: Sequence[View]) -> tuple[str, ...]:
    """What the windows' edges cut, in one sentence; nothing when they cut nothing."""
    cut = [view.summary.cut for view in views]
    across = sum(part.requests_across_start + part.requests_across_end for part in cut)
    outside = sum(part.tokens_before + part.tokens_after for part in cut)
    if not outside and not across:
        return ()
    return (
        f"Outside the measured windows (warm-up and cool-down): {outside} output tokens; {across} requests cross an "
        "edge and count only for what happened inside.",
    )


def client_of(views: Sequence[View]) -> tuple[str, ...]:
    """How the client itself kept up, in one sentence, at the point where it did worst."""
    worst = max(views, key=lambda view: view.point.client_lag_p99_s, default=None)
    if worst is None or not worst.point.client_busy_share:
        return ()
    busy = max(view.point.client_busy_share for view in views)
    return (
        f"The client woke {written(worst.point.client_lag_p99_s)} late at most (p99, at {worst.point.label}) and used "
        f"up to {busy:.0%} of a core.",
    )


def _knee(view: View) -> Json:
    """The knee for programs, in the units of the plot."""
    summary = view.summary
    ttft, itl = summary.ttft_s, summary.itl_s
    return {
        "label": view.point.label,
        "output_tokens_per_s": summary.output_tokens_per_s,
        "ttft_p50_ms": milliseconds(ttft.p50) if ttft else None,
        "ttft_p99_ms": milliseconds(ttft.p99) if ttft else None,
        "itl_p50_ms": milliseconds(itl.p50) if itl else None,
        "itl_p99_ms": milliseconds(itl.p99) if itl else None,
    }
