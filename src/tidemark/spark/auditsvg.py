"""Plots of the audit as SVG text: a bar for each count, with a few marks on the axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from tidemark.spark.auditreport import Bars

WIDTH, HEIGHT = 640, 220
#: Room for the marks of the axes, in pixels.
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 30
MARKS_MAX = 6


def bar_chart(bars: Bars, show: Callable[[float], str], title: str) -> str:
    """Bars of equal width side by side; `show` writes an edge under the axis."""
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    most = max(bars.counts, default=0) or 1
    wide = inner / len(bars.counts)
    shapes = [
        _bar(LEFT + at * wide, wide, tall * count / most, f"{show(low)} to {show(high)}: {count:,} events")
        for at, (count, low, high) in enumerate(zip(bars.counts, bars.edges, bars.edges[1:], strict=False))
        if count
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{_scale(most, tall, inner)}{''.join(shapes)}"
        f"{_marks(bars.edges, wide, show)}</svg>"
    )


def _bar(x: float, wide: float, tall: float, text: str) -> str:
    y = HEIGHT - BOTTOM - tall
    return (
        f'<rect class="bar" x="{x + 0.5:.1f}" y="{y:.1f}" width="{max(wide - 1, 0.5):.1f}" '
        f'height="{tall:.1f}"><title>{escape(text)}</title></rect>'
    )


def _scale(most: int, tall: float, inner: float) -> str:
    """Lines across, with their counts."""
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - tall * share
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(most * share)}</text>'
        )
    return "".join(lines)


def _marks(edges: Sequence[float], wide: float, show: Callable[[float], str]) -> str:
    """The values of some edges, below them."""
    step = max(1, -(-(len(edges) - 1) // (MARKS_MAX - 1)))
    marked = [(at, edges[at]) for at in range(0, len(edges), step)]
    return "".join(
        f'<text x="{LEFT + at * wide:.1f}" y="{HEIGHT - 10}" text-anchor="{_anchor(at, len(edges))}">'
        f"{escape(show(edge))}</text>"
        for at, edge in marked
    )


def _anchor(at: int, edges: int) -> str:
    return "start" if at == 0 else "end" if at == edges - 1 else "middle"


def _short(count: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= size:
            return f"{count / (1e3 if letter == 'k' else size):.3g}{letter}"
    return f"{count:g}"
