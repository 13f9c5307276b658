"""Table and plot of measurements made by `run.py`, from one or more of its files.

    python benchmarks/peers/report.py peers.jsonl [more.jsonl …] --out peers.html

Prints the table as Markdown. A ratio is the median of the rounds' own ratios, Paceline to the other, above 1 when
Paceline is ahead whichever way the figure counts; its interval is the sign test's at 95 % (with fewer than six rounds:
the range).

The verdicts give a second ratio from the undisturbed rounds alone: those in which, for both measurements of the pair,
less than 5 % of the watcher's samples were shared (`sharing.c`), in the mean of the CPUs. It needs three such rounds.
The rule was fixed before any result was seen; the first ratio is of all rounds, disturbed or not. A measurement that
nobody watched is never undisturbed. One whose best rate is below 0.8 of the best in its run was shared throughout,
whatever its watcher says: it saw no other state of the cores.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import plotly.graph_objects as go
from plotly.subplots import make_subplots
from work import WORKS, Measure

from paceline.bench.pairs import paired_ratio
from paceline.bench.png import browse, find_browser
from paceline.bench.result import PairedRatio
from peers import OURS

Round = tuple[str, int]  # Which run, which of its rounds.
COLORS = {OURS: "#2f7fd1", "llama.cpp": "#d98200", "openvino": "#009e73", "vllm": "#cc79a7"}
SHARED_BELOW = 0.8  # As in sharing.c.
UNDISTURBED_BELOW, MIN_UNDISTURBED_ROUNDS = 0.05, 3
PLOT_COLUMNS, PLOT_WIDTH, PLOT_ROW_HEIGHT, VERTICAL_GAP_PX = 3, 1400, 330, 70


@dataclass
class Row:
    """One engine in one format at one work: for each round a figure, what the machine gave, and which share of the
    time others used its cores.
    """

    engine: str
    format_name: str
    about: dict[str, str]
    values: dict[Round, float] = field(default_factory=dict)
    read_gb_per_s: list[float] = field(default_factory=list)
    vnni_gop_per_s: list[float] = field(default_factory=list)
    shared: dict[Round, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.engine} {self.format_name}"

    @property
    def is_ours(self) -> bool:
        return self.engine == OURS

    @property
    def middle(self) -> float:
        return median(self.values.values())

    @property
    def undisturbed(self) -> set[Round]:
        return {each for each, shared in self.shared.items() if shared < UNDISTURBED_BELOW}


@dataclass
class Section:
    """A figure of a work, of every engine that did it; best first."""

    work: str
    measure: Measure
    rows: list[Row]

    @property
    def ours(self) -> list[Row]:
        return [row for row in self.rows if row.is_ours]

    @property
    def theirs(self) -> list[Row]:
        return [row for row in self.rows if not row.is_ours]


def read_lines(files: Iterable[Path]) -> list[dict[str, object]]:
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


def sections_of(lines: Sequence[Mapping[str, object]]) -> list[Section]:
    """The measurements by work and figure."""
    by_work: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    best_rates: dict[str, float] = defaultdict(float)
    for line in lines:
        if "figures" in line:
            by_work[str(line["work"])].append(line)
        if "sharing" in line:
            best_rates[line["run"]] = max(best_rates[line["run"]], line["sharing"]["best_adds_per_ns"])
    sections = []
    for name, work in WORKS.items():
        for measure in work.measures:
            rows = rows_of(by_work[name], measure, best_rates)
            if rows:
                sections.append(Section(name, measure, rows))
    return sections


def rows_of(lines: Iterable[Mapping[str, object]], measure: Measure, best_rates: Mapping[str, float]) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    for line in lines:
        key = (str(line["engine"]), str(line["format"]))
        row = rows.setdefault(key, Row(*key, line["about"]))
        this_round = (line["run"], line["round"])
        row.values[this_round] = line["figures"][measure.name]
        row.read_gb_per_s.append(line["probe"]["read_gb_per_s"])
        row.vnni_gop_per_s.append(line["probe"]["vnni_gop_per_s"])
        shared = shared_of(line, best_rates)
        if shared is not None:
            row.shared[this_round] = shared
    return sorted(rows.values(), key=lambda row: row.middle, reverse=not measure.is_better_when_lower)


def shared_of(line: Mapping[str, object], best_rates: Mapping[str, float]) -> float | None:
    """The mean of the CPUs' shares; None when there was no watcher, or it had no sample."""
    sharing = line.get("sharing")
    shares = [share for share in sharing["shared_cores"] if share is not None] if sharing else []
    if not shares:
        return None
    return 1.0 if sharing["best_adds_per_ns"] < SHARED_BELOW * best_rates[line["run"]] else mean(shares)


def ahead(ours: Row, other: Row, measure: Measure, among: Set[Round] | None = None) -> PairedRatio | None:
    """How far ahead Paceline is in the rounds that both have; `among`: in those of them alone."""
    rounds = sorted(ours.values.keys() & other.values.keys() & (ours.values.keys() if among is None else among))
    mine, theirs = ([row.values[each] for each in rounds] for row in (ours, other))
    if measure.is_better_when_lower:
        mine, theirs = theirs, mine
    return paired_ratio(measure.name, ours.name, other.name, mine, theirs)


def ratio_text(ratio: PairedRatio | None) -> str:
    return "–" if ratio is None else f"{ratio.ratio:.2f} × ({ratio.low:.2f}–{ratio.high:.2f})"


def undisturbed_text(ours: Row, other: Row, measure: Measure) -> str:
    rounds = ours.undisturbed & other.undisturbed
    if len(rounds) < MIN_UNDISTURBED_ROUNDS:
        return f"– ({len(rounds)})"
    return f"{ratio_text(ahead(ours, other, measure, rounds))} ({len(rounds)})"


def shared_text(row: Row) -> str:
    """Median and largest of the rounds."""
    shares = row.shared.values()
    return f"{median(shares):.0%} ({max(shares):.0%})".replace("%", "") if shares else "–"


def spread_text(row: Row) -> str:
    """Median and range, with the digits that mean something."""
    digits = 2 if row.middle < 10 else 0
    low, high = min(row.values.values()), max(row.values.values())
    return f"{row.middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def markdown(sections: Sequence[Section]) -> str:
    """Who is best, then everything, then how each was run."""
    return "\n\n".join([verdicts(sections), *map(section_table, sections), formats(sections)])


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows))


def verdicts(sections: Sequence[Section]) -> str:
    """Each of Paceline's formats against the best of the others over all their formats."""
    rows = []
    for section in sections:
        for ours in section.ours if section.theirs else ():
            best = section.theirs[0]
            cells = (f"{ours.format_name} {spread_text(ours)}", f"{best.name} {spread_text(best)}")
            ratio = ratio_text(ahead(ours, best, section.measure))
            undisturbed = undisturbed_text(ours, best, section.measure)
            rows.append((section.work, section.measure.title, *cells, ratio, undisturbed))
    heads = ("work", "figure", "Paceline", "best of the others", "Paceline ahead", "in undisturbed rounds (n)")
    return table(heads, rows)


def section_table(section: Section) -> str:
    heads = ["engine", section.measure.title, "memory read, GB/s", "VNNI, GOP/s", "cores shared, %"]
    heads += [f"Paceline {ours.format_name} ahead" for ours in section.ours]
    rows = []
    for row in section.rows:
        probes = (f"{median(row.read_gb_per_s):.0f}", f"{median(row.vnni_gop_per_s):.0f}", shared_text(row))
        ratios = ["" if row is ours else ratio_text(ahead(ours, row, section.measure)) for ours in section.ours]
        rows.append((row.name, spread_text(row), *probes, *ratios))
    num_rounds = max(len(row.values) for row in section.rows)
    return f"**{section.work}**, rounds: {num_rounds}\n\n{table(heads, rows)}"


def formats(sections: Sequence[Section]) -> str:
    """How each was run: flags differ between works only where the program does."""
    seen = {(row.name, *row.about.values()): None for section in sections for row in section.rows}
    return table(("engine", "version", "weights", "KV cache", "interface", "flags"), sorted(seen))


def title(section: Section) -> str:
    sense = " (less is better)" if section.measure.is_better_when_lower else ""
    return f"{section.work}: {section.measure.title}{sense}"


def figure(sections: Sequence[Section]) -> go.Figure:
    """A panel a figure: bars of the medians, whiskers of the ranges."""
    num_rows = -(-len(sections) // PLOT_COLUMNS)
    titles = [title(section) for section in sections]
    gap = VERTICAL_GAP_PX / (PLOT_ROW_HEIGHT * num_rows)
    plot = make_subplots(num_rows, PLOT_COLUMNS, subplot_titles=titles, horizontal_spacing=0.13, vertical_spacing=gap)
    for index, section in enumerate(sections):
        rows = section.rows[::-1]  # The best on top.
        middles = [row.middle for row in rows]
        whiskers = {
            "type": "data",
            "symmetric": False,
            "array": [max(row.values.values()) - row.middle for row in rows],
            "arrayminus": [row.middle - min(row.values.values()) for row in rows],
        }
        bars = go.Bar(
            x=middles,
            y=[row.name for row in rows],
            orientation="h",
            marker_color=[COLORS[row.engine] for row in rows],
            error_x=whiskers,
        )
        plot.add_trace(bars, row=index // PLOT_COLUMNS + 1, col=index % PLOT_COLUMNS + 1)
    plot.update_layout(template="plotly_white", showlegend=False, width=PLOT_WIDTH, height=PLOT_ROW_HEIGHT * num_rows)
    plot.update_layout(margin={"t": 40, "b": 30, "l": 120, "r": 20}, font={"size": 12})
    return plot


def write_report(files: Sequence[Path], page: Path) -> None:
    """Print the table; write it beside `page`, and the plot as `page` and, where a Chromium is, as a PNG."""
    sections = sections_of(read_lines(files))
    if not sections:
        raise SystemExit("nothing was measured")
    text = markdown(sections)
    print(text)
    page.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    plot = figure(sections)
    plot.write_html(page, include_plotlyjs=True, config={"displayModeBar": False})
    browser = find_browser()
    if browser:
        picture = page.resolve().with_suffix(".png")
        size = f"--window-size={PLOT_WIDTH},{plot.layout.height}"
        browse(browser, page.resolve().as_uri(), f"--screenshot={picture}", size, "--virtual-time-budget=10000")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("peers.html"))
    options = parser.parse_args()
    write_report(options.files, options.out)


if __name__ == "__main__":
    main()
