"""Charts of the report: Vega-Lite, drawn to SVG by altair and vl-convert when the report is written.

An SVG needs no script in the page, prints as it is seen, and takes its colours from the page's style sheet: fills and
strokes name CSS variables, which follow the reader's light or dark scheme.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from mvindex.measure.analysis.page.markup import Markup, decimal, element, percent

_COLOURS = tuple(f"var(--series-{number})" for number in range(5))
# Vega's names of the points' shapes, and the same shapes as paths for the legend.
_SHAPES = {
    "square": "M2 2h8v8h-8z",
    "circle": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9z",
    "triangle-up": "M6 1.5l5 9h-10z",
    "diamond": "M6 .5l4.5 5.5l-4.5 5.5l-4.5-5.5z",
    "cross": "M4 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
}
_POINTS = ("circle", "square", "triangle-up", "diamond", "cross")
_WIDTH, _HEIGHT = 480, 230
_CLIP = re.compile(r'(?<=id=")clip\d+(?=")|(?<=url\(#)clip\d+(?=\))')
# A mark with a label: the label becomes a tooltip too, which browsers show for <title>.
_LABELLED = re.compile(r'<(path|line|text)( aria-label="([^"]*)"[^>]*?)(?:/>|></\1>)')


@dataclass(frozen=True, slots=True)
class Series:
    """One value per label of the x axis. intervals: low and high of each; is_quiet: drawn in the background."""

    name: str
    values: Sequence[float]
    intervals: Sequence[Sequence[float]] | None = None
    is_quiet: bool = False

    def colour(self, position: int) -> str:
        """Return the colour of the series at this position among its siblings."""
        return "var(--series-quiet)" if self.is_quiet else _COLOURS[position % len(_COLOURS)]


@dataclass(frozen=True, slots=True)
class Axes:
    """Titles of the axes. is_percent: values are shares from 0 to 1."""

    x: str
    y: str
    is_percent: bool = True

    def show(self, value: float) -> str:
        """Return a value of the y axis as text."""
        return percent(value) if self.is_percent else decimal(value)


def bars(
    labels: Sequence[str], series: Sequence[Series], axes: Axes, lines: Mapping[str, float] | None = None
) -> Markup:
    """Draw groups of bars, with whiskers where a series has intervals, and horizontal lines to compare with."""
    rows = [
        {"label": label, "series": one.name, "value": value, "tip": f"{label}, {one.name}: {axes.show(value)}"}
        for one in series
        for label, value in zip(labels, one.values, strict=True)
    ]
    whiskers = [
        {"label": label, "series": one.name, "low": low, "high": high}
        for one in series
        for label, (low, high) in zip(labels, one.intervals or (), strict=False)
    ]
    names = [one.name for one in series]
    offset = alt.XOffset("series:N", sort=names)
    drawn = (
        _chart(rows)
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=_steps(labels, axes.x),
            xOffset=offset,
            y=_values(axes),
            color=_colours(names, [one.colour(position) for position, one in enumerate(series)]),
            description="tip:N",
        )
    )
    layers = [drawn]
    if whiskers:
        place = {"x": _steps(labels, axes.x), "xOffset": offset}
        layers.append(
            _chart(whiskers)
            .mark_rule(color="var(--ink)", strokeWidth=1.5)
            .encode(**place, y=alt.Y("low:Q"), y2="high:Q")
        )
    for position, (name, value) in enumerate((lines or {}).items()):
        colour = _COLOURS[position + 1]
        row = [{"value": value, "name": f"{name}: {axes.show(value)}"}]
        rule = _chart(row).mark_rule(color=colour, strokeWidth=2, strokeDash=[6, 3])
        layers.append(rule.encode(y="value:Q", description="name:N"))
    legend = (
        [("square", one.colour(position), one.name) for position, one in enumerate(series)] if len(series) > 1 else []
    )
    legend += [("dash", _COLOURS[position + 1], name) for position, name in enumerate(lines or {})]
    return _render(alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT), legend)


def trend(labels: Sequence[str], series: Sequence[Series], axes: Axes) -> Markup:
    """Draw a line for each series over steps that are not to scale; series differ in colour and point shape."""
    rows = [
        {"label": label, "series": one.name, "value": value, "tip": f"{label}, {one.name}: {axes.show(value)}"}
        for one in series
        for label, value in zip(labels, one.values, strict=True)
    ]
    names = [one.name for one in series]
    colours = [one.colour(position) for position, one in enumerate(series)]
    base = _chart(rows).encode(x=_steps(labels, axes.x), y=_values(axes), color=_colours(names, colours))
    shapes = [_POINTS[position % len(_POINTS)] for position in range(len(names))]
    shape = alt.Shape("series:N", legend=None, scale=alt.Scale(domain=names, range=shapes))
    points = base.mark_point(filled=True, size=55, opacity=1).encode(shape=shape, description="tip:N")
    drawn = (base.mark_line(strokeWidth=2, aria=False) + points).properties(width=_WIDTH, height=_HEIGHT)
    return _render(drawn, list(zip(shapes, colours, names, strict=True)))


def matrix(values: Sequence[Sequence[float | None]], axes: Axes, low: float, high: float) -> Markup:
    """Draw a square of cells by slots, the stronger in colour the closer a value is to `high`."""
    size = len(values)
    rows = [
        {"row": str(row), "column": str(column), "value": value, "text": f"{value:.2f}",
         "tip": f"{axes.y} {row}, {axes.x} {column}: {decimal(value)}"}
        for row, line in enumerate(values)
        for column, value in enumerate(line)
        if value is not None
    ]  # fmt: skip
    slots = [str(slot) for slot in range(size)]
    base = _chart(rows).encode(
        x=alt.X("column:O", sort=slots, title=axes.x, axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("row:O", sort=slots, title=axes.y, axis=alt.Axis(labelOverlap=True)),
    )
    strength = alt.Opacity("value:Q", legend=None, scale=alt.Scale(domain=[low, high], range=[0.04, 1], clamp=True))
    cells = base.mark_rect(color="var(--heat)", stroke="var(--card)").encode(opacity=strength, description="tip:N")
    side = min(440, max(180, 46 * size))
    # Numbers of more slots than these would not fit into their cells.
    drawn = cells + base.mark_text(color="var(--ink)", fontSize=11).encode(text="text:N") if size <= 12 else cells
    return _render(alt.layer(drawn).properties(width=side, height=side * 0.8))


def histogram(edges: Sequence[float], counts: Sequence[int], axes: Axes) -> Markup:
    """Draw counts between edges; empty bins at both ends are left out."""
    filled = [position for position, number in enumerate(counts) if number] or [0]
    rows = [
        {"begin": edges[bin], "end": edges[bin + 1], "number": counts[bin],
         "tip": f"{edges[bin]:.2f} to {edges[bin + 1]:.2f}: {counts[bin]:,}"}
        for bin in range(filled[0], filled[-1] + 1)
    ]  # fmt: skip
    drawn = (
        _chart(rows)
        .mark_bar(color=_COLOURS[0], stroke="var(--card)")
        .encode(
            x=alt.X(
                "begin:Q",
                title=axes.x,
                scale=alt.Scale(zero=False, nice=False),
                axis=alt.Axis(format=".2~f", grid=False),
            ),
            x2="end:Q",
            y=alt.Y("number:Q", title=axes.y, axis=alt.Axis(format="~s", tickCount=5)),
            y2=alt.datum(0),
            description="tip:N",
        )
    )
    return _render(drawn.properties(width=_WIDTH, height=_HEIGHT))


def plane(document: Mapping[str, Any]) -> Markup:
    """Draw a document's views (numbered circles) and its questions (diamonds), each tied to the view that won it."""
    views = {view["slot"]: view for view in document["views"]}
    won = {question["slot"] for question in document["questions"]}
    points = [
        {"x": view["x"], "y": view["y"], "label": str(slot), "tip": f"view {slot}", "series": _view_kind(slot in won)}
        for slot, view in views.items()
    ]
    questions = [
        {"x": one["x"], "y": one["y"], "label": f"Q{number}", "tip": f"question {number}, won by view {one['slot']}",
         "series": "question"}
        for number, one in enumerate(document["questions"], start=1)
    ]  # fmt: skip
    ties = [
        {"x": one["x"], "y": one["y"], "x2": views[one["slot"]]["x"], "y2": views[one["slot"]]["y"]}
        for one in document["questions"]
        if one["slot"] in views
    ]
    kinds = list(dict.fromkeys(row["series"] for row in [*points, *questions]))
    colours = {_view_kind(True): _COLOURS[0], _view_kind(False): "var(--series-quiet)", "question": _COLOURS[1]}
    shapes = {_view_kind(True): "circle", _view_kind(False): "circle", "question": "diamond"}
    axis = alt.Axis(labels=False, ticks=False, domain=False, gridOpacity=0.6)
    scale = alt.Scale(zero=False, nice=True, padding=24)
    x, y = (alt.X("x:Q", title=None, axis=axis, scale=scale), alt.Y("y:Q", title=None, axis=axis, scale=scale))
    lines = _chart(ties).mark_rule(color="var(--quiet)", opacity=0.5).encode(x=x, y=y, x2="x2", y2="y2")
    base = _chart([*points, *questions]).encode(x=x, y=y)
    marks = base.mark_point(filled=True, size=130, opacity=1).encode(
        color=_colours(kinds, [colours[kind] for kind in kinds]),
        shape=alt.Shape("series:N", legend=None, scale=alt.Scale(domain=kinds, range=[shapes[kind] for kind in kinds])),
        description="tip:N",
    )
    names = base.mark_text(dy=-14, color="var(--ink)", fontSize=11).encode(text="label:N")
    drawn = alt.layer(lines, marks, names).properties(width=_WIDTH, height=330)
    return _render(drawn, [(shapes[kind], colours[kind], kind) for kind in kinds])


def _view_kind(is_winner: bool) -> str:
    return "view that won a question" if is_winner else "view that won none"


def _chart(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    return alt.Chart(alt.Data(values=list(rows)))


def _steps(labels: Sequence[str], title: str) -> alt.X:
    axis = alt.Axis(labelAngle=0, labelOverlap=True, grid=False)
    return alt.X("label:N", sort=list(labels), title=title, axis=axis, scale=alt.Scale(paddingInner=0.25))


def _values(axes: Axes) -> alt.Y:
    if axes.is_percent:
        scale = alt.Scale(domainMin=0, nice=True)
        return alt.Y("value:Q", title=axes.y, scale=scale, axis=alt.Axis(format="~%", tickCount=5))
    return alt.Y("value:Q", title=axes.y, axis=alt.Axis(format="~g", tickCount=5))


def _colours(names: Sequence[str], colours: Sequence[str]) -> alt.Color:
    return alt.Color("series:N", legend=None, scale=alt.Scale(domain=list(names), range=list(colours)))


def _legend(entries: Sequence[tuple[str, str, str]]) -> Markup:
    """Return a legend in HTML, whose text takes the room that the reader's font needs.

    entries: shape (a key of _SHAPES, or "dash"), colour and name of each series.
    """
    return element(
        "ul", (element("li", _symbol(shape, colour), name) for shape, colour, name in entries), class_="legend"
    )


def _symbol(shape: str, colour: str) -> Markup:
    if shape == "dash":
        drawn = element("path", d="M0 6h5M8 6h5", stroke=colour, stroke_width="2")
    else:
        drawn = element("path", d=_SHAPES[shape], fill=colour)
    return element("svg", drawn, width="13", height="12", viewBox="0 0 13 12", aria_hidden="true")


def _render(chart: alt.LayerChart | alt.Chart, legend: Sequence[tuple[str, str, str]] = ()) -> Markup:
    """Return the chart as a figure with an SVG that follows the page's width and a tooltip on each labelled mark."""
    styled = (
        chart.configure(background="transparent", font="system-ui, sans-serif")
        .configure_view(stroke=None)
        .configure_axis(
            labelColor="var(--quiet)", titleColor="var(--quiet)", titleFontWeight="normal", labelFontSize=12,
            titleFontSize=12, gridColor="var(--line)", domainColor="var(--line)", tickColor="var(--line)",
        )
        # The reader's font may be wider than the one that labels are measured with here.
        .configure_axisY(titlePadding=16)
    )  # fmt: skip
    file = io.StringIO()
    styled.save(file, format="svg")
    drawn = Markup(_LABELLED.sub(r"<\1\2><title>\3</title></\1>", _with_own_ids(file.getvalue())))
    return element("figure", _legend(legend) if legend else None, drawn, class_="chart")


def _with_own_ids(svg: str) -> str:
    """Return the SVG with ids that depend on its content: Vega counts them on from chart to chart of a process."""
    names = list(dict.fromkeys(_CLIP.findall(svg)))
    digest = hashlib.sha256(_CLIP.sub("", svg).encode()).hexdigest()[:12]
    return _CLIP.sub(lambda found: f"clip-{digest}-{names.index(found.group())}", svg)
