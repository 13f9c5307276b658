"""The report's page: one HTML file that needs nothing else, now or in ten years.

Style, script and plotly are written into it, and its policy forbids it to load anything from anywhere.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files

from plotly.offline import get_plotlyjs

from paceline.bench.report_figure import Figure, Json

# 'unsafe-inline' is this file's own script and style; nothing may come from a host.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of text: first column is the row's name. `marked`: index of the row to bring out."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """What the page says. `data`: JSON scripts by element id, for whoever reads the page by program.

    `heading` stands over the table, `details` over the one that is folded away.
    """

    title: str
    summary: str
    command: str
    warnings: tuple[str, ...]
    facts: Mapping[str, Mapping[str, str]]
    table: Table
    percentiles: Table
    notes: tuple[str, ...]
    figures: tuple[Figure, ...]
    data: Mapping[str, Json]
    heading: str = "Points"
    details: str = "All percentiles"


def render(page: Page) -> str:
    """The page as HTML."""
    figures = [{"id": figure.figure_id, **_drawn(figure)} for figure in page.figures]
    scripts = "".join(_json_script(name, value) for name, value in {"figures": figures, **page.data}.items())
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            _head(page.title),
            "<body>",
            _header(page),
            "<main>",
            _points(page),
            "".join(_figure(figure) for figure in page.figures),
            "</main>",
            scripts,
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{_resource('report.js')}</script>",
            "</body></html>\n",
        ]
    )


def _drawn(figure: Figure) -> Json:
    fields = asdict(figure)
    return {"traces": fields["traces"], "layout": fields["layout"]}


def _resource(name: str) -> str:
    return files("paceline.bench").joinpath(name).read_text(encoding="utf-8")


def _json_script(element_id: str, value: object) -> str:
    """JSON in a script element: `<` is escaped, or a string could end the element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{element_id}">{text}</script>\n'


def _head(title: str) -> str:
    return f"""<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(title)}</title>
<style>{_resource("report.css")}</style>
</head>"""


def _header(page: Page) -> str:
    facts = "".join(_facts(name, values) for name, values in page.facts.items() if values)
    return f"""<header>
<h1>{escape(page.title)}</h1>
<p>{escape(page.summary)}</p>
{_warnings(page.warnings)}
<pre aria-label="exact command"><code>{escape(page.command)}</code></pre>
<div class="facts">{facts}</div>
</header>"""


def _warnings(warnings: Sequence[str]) -> str:
    if not warnings:
        return ""
    items = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return f'<div class="alarm" role="alert"><h2>Read this before the numbers</h2><ul>{items}</ul></div>'


def _facts(name: str, values: Mapping[str, str]) -> str:
    items = "".join(f"<dt>{escape(key)}</dt><dd>{escape(value)}</dd>" for key, value in values.items())
    return f"<section><h2>{escape(name)}</h2><dl>{items}</dl></section>"


def _points(page: Page) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in page.notes)
    return f"""<section class="points"><h2>{escape(page.heading)}</h2>
{_table(page.table)}
<ul class="quiet">{notes}</ul>
<details><summary>{escape(page.details)}</summary>{_table(page.percentiles)}</details></section>"""


def _table(table: Table) -> str:
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in table.heads)
    rows = "".join(_row(row, index == table.marked) for index, row in enumerate(table.rows))
    head, body = f"<thead><tr>{heads}</tr></thead>", f"<tbody>{rows}</tbody>"
    return f'<div class="scroll" tabindex="0"><table>{head}{body}</table></div>'


def _row(row: Sequence[str], is_marked: bool) -> str:
    name, *cells = row
    mark = ' class="knee"' if is_marked else ""
    values = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr{mark}><th scope="row">{escape(name)}</th>{values}</tr>'


def _figure(figure: Figure) -> str:
    title, caption, name = escape(figure.title), escape(figure.caption), escape(figure.figure_id)
    style = f"min-height: {figure.layout['height']}px"
    return f"""<figure>
<h3>{title}</h3>
<div class="plot" id="{name}" role="img" aria-label="{title}. {caption}" style="{style}"></div>
<figcaption>{caption}</figcaption>
</figure>
"""
