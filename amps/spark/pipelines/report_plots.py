"""Plots as SVG elements of a page: lines over time, and bars. Colours and fonts are the page's (`report_page`)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from amps.spark.pipelines.report_intervals import moment
from amps.spark.pipelines.report_page import element

WIDTH = 900
HEIGHT = 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 12, 12, 28
_TICKS = 4


@dataclass(frozen=True, slots=True)
class Series:
    """The values of a series, one per place on the x axis. `style`: "one", "two" or "three"."""

    name: str
    style: str
    values: Sequence[int]


def nice_top(highest: float) -> float:
    """Return the end of an axis: a round number that is not less than the highest value."""
    if highest <= 0:
        return 1
    power: float = 10 ** math.floor(math.log10(highest))
    return next((step * power for step in (1, 2, 5) if step * power >= highest), 10 * power)


def time_plot(begins_us: Sequence[int], interval_us: int, lines: Sequence[Series]) -> Element:
    """Return a plot of step lines over intervals of time, one value per interval."""
    top = nice_top(max((max(line.values, default=0) for line in lines), default=0))
    drawing = _drawing(top)
    count = max(1, len(begins_us))
    step = (WIDTH - _LEFT - _RIGHT) / count
    for line in lines:
        points = []
        for number, value in enumerate(line.values):
            y = _y(value, top)
            points += [f"{_LEFT + number * step:.1f},{y:.1f}", f"{_LEFT + (number + 1) * step:.1f},{y:.1f}"]
        drawing.append(
            element(
                "polyline",
                element("title", line.name),
                class_=f"stroke-{line.style}",
                points=" ".join(points),
            )
        )
    if begins_us:
        ends = (begins_us[0], "start", _LEFT), (begins_us[-1] + interval_us, "end", WIDTH - _RIGHT)
        for us, anchor, x in ends:
            drawing.append(element("text", moment(us), x=x, y=HEIGHT - 8, text_anchor=anchor))
    _legend(drawing, lines)
    return drawing


def stacked_bars(labels: Sequence[str], stacks: Sequence[Series]) -> Element:
    """Return a plot with a bar per label; the series are stacked."""
    totals = [sum(values) for values in zip(*(stack.values for stack in stacks), strict=True)]
    top = nice_top(max(totals, default=0))
    drawing = _drawing(top)
    step = (WIDTH - _LEFT - _RIGHT) / max(1, len(labels))
    shown_each = max(1, math.ceil(len(labels) / 12))
    for place, label in enumerate(labels):
        x = _LEFT + place * step
        below = 0
        for stack in stacks:
            value = stack.values[place]
            if value:
                y = _y(below + value, top)
                drawing.append(
                    element(
                        "rect",
                        element("title", f"{label}: {value:,} {stack.name}"),
                        class_=stack.style,
                        x=f"{x:.1f}",
                        y=f"{y:.1f}",
                        width=f"{max(0.5, step * 0.9):.1f}",
                        height=f"{_y(below, top) - y:.1f}",
                    )
                )
            below += value
        if place % shown_each == 0:
            drawing.append(element("text", label, x=f"{x:.1f}", y=HEIGHT - 8))
    _legend(drawing, stacks)
    return drawing


def _y(value: float, top: float) -> float:
    return HEIGHT - _BOTTOM - value / top * (HEIGHT - _TOP - _BOTTOM)


def _drawing(top: float) -> Element:
    """Return an empty drawing with its y axis."""
    drawing = element("svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img")
    for tick in range(_TICKS + 1):
        value = top * tick / _TICKS
        y = f"{_y(value, top):.1f}"
        drawing.append(element("line", class_="axis", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y))
        drawing.append(element("text", f"{value:,.10g}", x=_LEFT - 6, y=y, text_anchor="end", dy="0.35em"))
    return drawing


def _legend(drawing: Element, series: Sequence[Series]) -> None:
    if len(series) < 2:
        return
    x = WIDTH - _RIGHT
    for one in reversed(series):
        drawing.append(element("text", one.name, x=x, y=_TOP + 2, text_anchor="end"))
        x -= 7 * len(one.name) + 8
        drawing.append(element("rect", class_=one.style, x=x, y=_TOP - 6, width=8, height=8))
        x -= 14
