"""A plot of latencies over sizes, on logarithmic scales, as a self-contained SVG file."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 860, 480
LEFT, RIGHT, TOP, BOTTOM = 80, 230, 50, 60
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: points (size in bytes, latency in µs) with rising sizes."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int
    dashed: bool = False


def size_text(size_bytes: float) -> str:
    """`64 KiB`"""
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes:g} B"


def latency_text(latency_us: float) -> str:
    """Return a latency as a text: `120 µs`, `3.5 ms`, `1.2 s`."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if latency_us >= factor:
            return f"{latency_us / factor:.3g} {unit}"
    return f"{latency_us:.3g} µs"


def plot(title: str, lines: Sequence[Line]) -> str:
    """Return the plot as SVG."""
    points = [point for line in lines for point in line.points]
    sizes = sorted({size for size, _ in points})
    low, high = min(sizes), max(sizes)
    bottom = 10 ** math.floor(math.log10(min(latency for _, latency in points)))
    top = 10 ** math.ceil(math.log10(max(latency for _, latency in points)) + 1e-9)

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log(size / low) / (math.log(high / low) or 1.0)

    def y(latency: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * math.log(latency / bottom) / math.log(top / bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="28" font-size="16">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 15}" text-anchor="middle">bytes per write</text>',
    ]
    decade = float(bottom)
    while decade <= top * 1.001:
        parts.append(_line(LEFT, y(decade), WIDTH - RIGHT, y(decade), "#dddddd"))
        parts.append(_text(LEFT - 8, y(decade) + 4, latency_text(decade), "end"))
        decade *= 10
    for size in sizes:
        parts.append(_line(x(size), TOP, x(size), HEIGHT - BOTTOM, "#eeeeee"))
        parts.append(_text(x(size), HEIGHT - BOTTOM + 20, size_text(size), "middle"))
    for number, line in enumerate(lines):
        colour = COLOURS[line.colour % len(COLOURS)]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        path = " ".join(f"{x(size):.1f},{y(latency):.1f}" for size, latency in line.points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        for size, latency in line.points:
            label = escape(f"{line.name}, {size_text(size)}: {latency_text(latency)}")
            place = f'cx="{x(size):.1f}" cy="{y(latency):.1f}"'
            parts.append(f'<circle {place} r="3" fill="{colour}"><title>{label}</title></circle>')
        legend_y = TOP + 14 + number * 22
        begin = WIDTH - RIGHT + 20
        parts.append(
            f'<line x1="{begin}" y1="{legend_y}" x2="{begin + 30}" y2="{legend_y}" stroke="{colour}" '
            f'stroke-width="2"{dash}/>'
        )
        parts.append(_text(begin + 38, legend_y + 4, line.name, "start"))
    return "\n".join([*parts, "</svg>", ""])


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
