"""Head-of-line blocking at a glance: the gaps of the running streams while a long prompt is prefilled.

One panel a server, all with the same axes, so that the height of the spikes can be compared by eye.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from paceline.bench.columns import written
from paceline.bench.hol import stall_of
from paceline.bench.record import RequestRecord
from paceline.bench.report_figure import COLORS, MS, Figure, Json, View, axis, safe

PANEL_HEIGHT = 260
MARGIN_TOP, MARGIN_BOTTOM = 30, 50
SHADE = "rgba(217, 130, 0, 0.18)"


@dataclass(frozen=True, slots=True)
class Gap:
    """A wait between two tokens of one stream."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """How long nothing came."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class Panel:
    """One server: its streams, and the long prompt from when it was sent to its first token."""

    view: View
    streams: tuple[RequestRecord, ...]
    start_s: float
    end_s: float

    @property
    def stall(self) -> Gap | None:
        """The streams' longest gap during the prefill, as `hol` defines it, and where it lies."""
        measured = stall_of(self.view.records, self.view.point.injected)
        gaps = (gap for stream in self.streams for gap in gaps_of(stream))
        return next((gap for gap in gaps if measured is not None and gap.length_s == measured.stall_s), None)


def gaps_of(record: RequestRecord) -> list[Gap]:
    """The gaps of a stream between reads; events of one read have none between them."""
    times = record.event_times_s
    return [Gap(before, after) for before, after in pairwise(times) if after > before]


def stall_figure(views: Sequence[View]) -> Figure | None:
    """The stall plot; None where no point injected anything."""
    panels = [panel for view in views for panel in _panels(view)]
    if not panels:
        return None
    traces = [trace for number, panel in enumerate(panels) for trace in _streams(number, panel)]
    told = "; ".join(f"{p.view.point.label}: {written(p.stall.length_s)}" for p in panels if p.stall)
    return Figure(
        "stall",
        "Gaps of the running streams around a long prompt",
        "Each line is one running stream; its height is the gap it is in, for as long as it lasts. Shaded: from when "
        f"the long prompt was sent until its first token. Longest stall: {told or 'none'}.",
        tuple(traces),
        _layout(panels),
    )


def _panels(view: View) -> list[Panel]:
    injected = [record for record in view.records if record.index in view.point.injected]
    return [
        Panel(view, view.streams, record.sent_s, record.event_times_s[0] if record.event_times_s else record.ended_s)
        for record in injected[:1]
    ]


def _streams(number: int, panel: Panel) -> list[Json]:
    return [_stream(number, index, panel, record) for index, record in enumerate(panel.streams)]


def _stream(number: int, index: int, panel: Panel, record: RequestRecord) -> Json:
    gaps = gaps_of(record)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": f"stream {index}",
        "showlegend": False,
        "x": [gap.end_s - panel.start_s for gap in gaps],
        "y": [gap.length_s * MS for gap in gaps],
        "xaxis": _axis("x", number),
        "yaxis": _axis("y", number),
        # Drawn at its height for as long as it lasted.
        "line": {"color": COLORS[0], "width": 1.5, "shape": "vh"},
        "marker": {"color": COLORS[0], "size": 4},
        "opacity": 0.6,
        "hovertemplate": f"stream {index}: " + "%{y:.1f} ms at %{x:.3f} s<extra></extra>",
    }


def _layout(panels: Sequence[Panel]) -> Json:
    """Panels under each other with equal axes; x is seconds since the long prompt was sent."""
    margin = max(1.0, max(panel.end_s - panel.start_s for panel in panels))
    x_range = [-margin, max(panel.end_s - panel.start_s for panel in panels) + margin]
    longest = max((gap.length_s for p in panels for stream in p.streams for gap in gaps_of(stream)), default=0.001)
    height = PANEL_HEIGHT * len(panels)
    result: Json = {
        "height": height + MARGIN_TOP + MARGIN_BOTTOM,
        "margin": {"l": 60, "r": 40, "t": MARGIN_TOP, "b": MARGIN_BOTTOM},
        "hovermode": "closest",
        "shapes": [_shade(number, panel) for number, panel in enumerate(panels)],
        "annotations": [note for number, panel in enumerate(panels) for note in _notes(number, panel)],
    }
    for number in range(len(panels)):
        top = 1 - number / len(panels)
        bottom = top - (1.0 if number == len(panels) - 1 else 0.8) / len(panels)
        title = "s since the long prompt was sent" if number == len(panels) - 1 else ""
        result[_key("xaxis", number)] = axis(title, range=x_range, anchor=_axis("y", number))
        result[_key("yaxis", number)] = axis(
            "ITL (ms)", range=[0, longest * MS * 1.15], domain=[max(0.0, bottom), top], anchor=_axis("x", number)
        )
    return result


def _shade(number: int, panel: Panel) -> Json:
    return {
        "type": "rect",
        "xref": _axis("x", number),
        "yref": f"{_axis('y', number)} domain",
        "x0": 0,
        "x1": panel.end_s - panel.start_s,
        "y0": 0,
        "y1": 1,
        "fillcolor": SHADE,
        "line": {"width": 0},
        "layer": "below",
    }


def _notes(number: int, panel: Panel) -> list[Json]:
    x, y = _axis("x", number), _axis("y", number)
    title = {
        "text": f"<b>{safe(panel.view.point.label)}</b>",
        "xref": f"{x} domain",
        "yref": f"{y} domain",
        "x": 0,
        "y": 1.02,
        "yanchor": "bottom",
        "xanchor": "left",
        "showarrow": False,
    }
    stall = panel.stall
    if stall is None:
        return [title]
    mark = {
        "text": f"stall {written(stall.length_s)}",
        "xref": x,
        "yref": y,
        "x": stall.end_s - panel.start_s,
        "y": stall.length_s * MS,
        "ax": 40,
        "ay": -25,
        "showarrow": True,
        "arrowcolor": COLORS[5],
        "font": {"color": COLORS[5], "size": 14},
    }
    return [title, mark]


def _axis(letter: str, number: int) -> str:
    """Plotly's name of an axis: x, x2, x3 …"""
    return letter if number == 0 else f"{letter}{number + 1}"


def _key(name: str, number: int) -> str:
    return name if number == 0 else f"{name}{number + 1}"
