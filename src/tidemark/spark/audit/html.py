"""The audit's report as one page of HTML that needs nothing else: no scripts, no files, no network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from html import escape

from tidemark.message.visible import visible
from tidemark.spark.audit.report import (
    COUNTS,
    FAULTS,
    PERCENTILES,
    AuditReport,
    Histogram,
    Latency,
    SubscriberAccount,
    show_milliseconds,
)

#: The size of a plot, and the room for the marks of its axes, in pixels.
WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 10, 30
MARKS_MAX = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STYLE = """
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


def page(report: AuditReport) -> str:
    """The report as a page of HTML."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tidemark audit</title><style>{_STYLE}</style></head><body>\n"
        f"<h1>{_verdict(report)}</h1>\n"
        f"<p>{report.published:,} events were to be published, {report.acknowledged:,} of them are logged. "
        f"{len(report.accounts):,} subscribers were to get {report.total('matched'):,} and got "
        f"{report.total('delivered'):,}.</p>\n"
        f"{_plots(report)}{_subscribers(report)}{_reasons(report)}{_keys(report)}{_idle(report)}</body></html>\n"
    )


def _verdict(report: AuditReport) -> str:
    if report.is_clean:
        return '<span class="good">Exactly once and in order</span>'
    faults = ", ".join(
        f"{report.total(fault):,} {fault.replace('_', ' ')}" for fault in FAULTS if report.total(fault)
    )
    return f'<span class="bad">Not exactly once: {faults}</span>'


def _plots(report: AuditReport) -> str:
    plots = []
    if report.latencies is not None and report.latency is not None:
        chart = bar_chart(report.latencies, show_milliseconds, "Latency of deliveries")
        plots.append(f"<figure>{chart}<figcaption>{_latency_text(report.latency)}</figcaption></figure>")
    if report.deliveries is not None:
        first = report.deliveries.edges[0]
        chart = bar_chart(
            report.deliveries, lambda at: f"+{(at - first) / 1e6:.3g} s", "Deliveries over time"
        )
        began = f"deliveries over time, from {_time(first)}"
        plots.append(f"<figure>{chart}<figcaption>{began}</figcaption></figure>")
    return f'<div class="plots">{"".join(plots)}</div>\n' if plots else ""


def _latency_text(latency: Latency) -> str:
    values = latency.as_dict()
    parts = [f"{name} {show_milliseconds(values[f'{name}_ms'])}" for name in ("min", *PERCENTILES, "max")]
    return "latency from publisher to subscriber: " + ", ".join(parts)


def _subscribers(report: AuditReport) -> str:
    titles = [name.replace("_", " ") for name in COUNTS]
    rows = [_row(account) for account in report.accounts]
    total = [f"{report.total(name):,}" for name in COUNTS]
    last = _cells(["all", "", "", *total, *_percentiles(report.latency)], COUNTS_FROM)
    head = _head(["subscriber", "topic", "selector", *titles, "p50", "p99"], COUNTS_FROM)
    body = "".join((*rows, f'<tr class="total">{last}</tr>'))
    return f'<h2>Subscribers</h2><div class="wide"><table>{head}{body}</table></div>\n'


#: The first column of the table of subscribers that has numbers; those before it have text.
COUNTS_FROM = 3


def _row(account: SubscriberAccount) -> str:
    counts = [f"{getattr(account, name):,}" for name in COUNTS]
    bad = {COUNTS_FROM + COUNTS.index(fault) for fault in FAULTS if getattr(account, fault)}
    texts = [account.subscriber, account.topic, account.where]
    return f"<tr>{_cells([*texts, *counts, *_percentiles(account.latency)], COUNTS_FROM, bad)}</tr>"


def _percentiles(latency: Latency | None) -> list[str]:
    if latency is None:
        return ["-", "-"]
    return [show_milliseconds(latency.percentiles[name] / 1e3) for name in ("p50", "p99")]


def _reasons(report: AuditReport) -> str:
    if not (reasons := report.reasons()):
        return ""
    rows = "".join(
        f"<tr>{_cells([reason or '-', f'{gaps:,}', f'{events:,}'], 1)}</tr>"
        for reason, (gaps, events) in sorted(reasons.items())
    )
    return f"<h2>Gaps</h2><table>{_head(['reason', 'gaps', 'events in them'], 1)}{rows}</table>\n"


def _keys(report: AuditReport) -> str:
    if report.is_clean:
        return ""
    rows = "".join(
        f"<tr>{_cells([account.subscriber, fault.replace('_', ' '), ', '.join(keys)], 3)}</tr>"
        for account in report.accounts
        for fault, keys in account.keys.items()
    )
    head = _head(["subscriber", "fault", "keys of the first events"], 3)
    return f'<h2>Where to look</h2><div class="wide"><table>{head}{rows}</table></div>\n'


def _idle(report: AuditReport) -> str:
    names = ", ".join(map(_safe, report.idle))
    return f'<p class="dim">Never subscribed: {names}</p>\n' if report.idle else ""


def _head(titles: Sequence[str], numbers_from: int) -> str:
    cells = (
        f'<th class="number">{escape(title)}</th>' if at >= numbers_from else f"<th>{escape(title)}</th>"
        for at, title in enumerate(titles)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _cells(texts: Iterable[str], numbers_from: int, bad: Iterable[int] = ()) -> str:
    reds = frozenset(bad)
    cells = []
    for at, text in enumerate(texts):
        classes = " ".join(["number"] * (at >= numbers_from) + ["bad"] * (at in reds))
        cells.append(f'<td class="{classes}">{_safe(text)}</td>' if classes else f"<td>{_safe(text)}</td>")
    return "".join(cells)


def _safe(text: str) -> str:
    """Text of a ledger, in which nothing acts on a page or a terminal."""
    return escape(visible(text))


def _time(microseconds: float) -> str:
    """The time in UTC, or the number of the tick if it is outside the years 1 to 9999."""
    try:
        return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="seconds")
    except OverflowError:
        return f"tick {microseconds:.0f}"


def bar_chart(bars: Histogram, show: Callable[[float], str], title: str) -> str:
    """A bar chart as SVG, with bars of equal width; `show` formats an edge under the axis."""
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
    """Horizontal lines with their counts."""
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - tall * share
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + inner}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(most * share)}</text>'
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
