"""Parts of pages of HTML that need nothing else: no scripts, no files, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape

from tidemark.message.visible import visible

#: The size of a plot, and the room for the marks of its axes, in pixels.
WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 30
MARKS_MAX = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --dim: #62707d; --line: #d5dce2; --bar: #2f7fb8;
  --good: #187a44; --bad: #b3261e; --back: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ee; --dim: #93a1ad; --line: #38434d; --bar: #5aa9e0;
  --good: #4cc38a; --bad: #ff8a80; --back: #14191e } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); margin: 2rem auto;
  max-width: 76rem; padding: 0 1.5rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.good { color: var(--good) } .bad { color: var(--bad); font-weight: 600 } .dim { color: var(--dim) }
.plots { display: flex; flex-wrap: wrap; gap: 1.5rem } figure { flex: 1 1 28rem; margin: 0 }
figcaption { color: var(--dim) } svg { width: 100%; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: var(--dim) } .bar { fill: var(--bar) }
.grid { stroke: var(--line) }
.wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap }
th { color: var(--dim); font-weight: 500 } .number { text-align: right; font-variant-numeric: tabular-nums }
tr.total td { font-weight: 600; border-bottom: none } code { font-size: .9em }
"""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Bar i counts what lies in `[edges[i], edges[i + 1])`; the last bar includes its end."""

    edges: list[float]
    counts: Sequence[float]


def document(title: str, body: str) -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>\n{body}</body></html>\n"
    )


def head_row(titles: Sequence[str], numbers_from: int) -> str:
    """The row of titles of a table; from a column on, the columns have numbers."""
    cells = (
        f'<th class="number">{escape(title)}</th>' if at >= numbers_from else f"<th>{escape(title)}</th>"
        for at, title in enumerate(titles)
    )
    return f"<tr>{''.join(cells)}</tr>"


def cells(texts: Iterable[str], numbers_from: int, bad: Iterable[int] = ()) -> str:
    """The cells of a row; those of the columns `bad` are marked."""
    reds = frozenset(bad)
    cells = []
    for at, text in enumerate(texts):
        classes = " ".join(["number"] * (at >= numbers_from) + ["bad"] * (at in reds))
        cells.append(f'<td class="{classes}">{safe(text)}</td>' if classes else f"<td>{safe(text)}</td>")
    return "".join(cells)


def safe(text: str) -> str:
    """Text of strangers, in which nothing acts on a page or a terminal."""
    return escape(visible(text))


def show_time(microseconds: float) -> str:
    """The time in UTC, or the number of the tick if it is outside the years 1 to 9999."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="seconds")
    except OverflowError:
        return f"tick {microseconds:.0f}"


def bar_chart(
    bars: Histogram,
    show: Callable[[float], str],
    title: str,
    show_count: Callable[[float], str] | None = None,
) -> str:
    """A bar chart as SVG, with bars of equal width; `show` formats an edge under the axis.

    `show_count` formats what a bar counts; by default that is events.
    """
    inner, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    most = max(bars.counts, default=0) or 1
    told = show_count or (lambda count: f"{count:,} events")
    wide = inner / len(bars.counts)
    shapes = [
        _bar(LEFT + at * wide, wide, tall * count / most, f"{show(low)} to {show(high)}: {told(count)}")
        for at, (count, low, high) in enumerate(zip(bars.counts, bars.edges, bars.edges[1:], strict=False))
        if count
    ]
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{_scale(most, tall, inner, show_count or _short)}{''.join(shapes)}"
        f"{_marks(bars.edges, wide, show)}</svg>"
    )


def _bar(x: float, wide: float, tall: float, text: str) -> str:
    y = HEIGHT - BOTTOM - tall
    return (
        f'<rect class="bar" x="{x + 0.5:.1f}" y="{y:.1f}" width="{max(wide - 1, 0.5):.1f}" '
        f'height="{tall:.1f}"><title>{escape(text)}</title></rect>'
    )


def _scale(most: float, tall: float, inner: float, show: Callable[[float], str]) -> str:
    """Horizontal lines with their counts."""
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - tall * share
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(show(most * share))}</text>'
        )
    return "".join(lines)


def _marks(edges: Sequence[float], wide: float, show: Callable[[float], str]) -> str:
    """The values of some edges, below the axis."""
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
