"""The report on an archive as one page of HTML that needs nothing else: no scripts, no files, no network."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.spark.page_parts import Histogram, bar_chart, cells, document, head_row, safe, show_time
from tidemark.spark.report.figures import ArchiveFigures, TopicFigures
from tidemark.spark.upkeep.erasure import ErasureSummary


def page(found: ArchiveFigures) -> str:
    """The figures as a page of HTML."""
    latency = ", ".join(f"{name} {show_milliseconds(value)}" for name, value in found.latency_ms.items())
    told = f" An event is archived after: {latency}." if latency else ""
    return document(
        "Tidemark archive",
        f"<h1>Archive <code>{safe(found.path)}</code></h1>\n"
        f"<p>{found.events:,} events in {show_bytes(found.file_bytes)} of files, "
        f"{show_bytes(found.event_bytes)} as they were published. {found.rounds:,} rounds are noted."
        f'{told}</p>\n<p class="dim">As of {show_time(found.at * 1e6)} UTC.</p>\n'
        f"{_plots(found)}{_topics(found)}{_tables(found)}{_erasures(found)}",
    )


def show_milliseconds(value: float) -> str:
    """A time in milliseconds, for people."""
    if value < 1_000:
        return f"{value:.3g} ms"
    return f"{value / 1_000:.3g} s" if value < 120_000 else f"{value / 60_000:.3g} min"


def show_rate(value: float) -> str:
    """Events a second, for people."""
    return f"{value:,.3g}/s" if value < 1_000 else f"{value:,.0f}/s"


def show_bytes(value: float) -> str:
    """A size, for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1_024:
            return f"{value:.3g} {unit}"
        value /= 1_024
    return f"{value:.3g} TiB"


def _plots(found: ArchiveFigures) -> str:
    plots = [
        _plot(_per_second(found.published), "events published a second", show_rate),
        _plot(_per_second(found.archived), "events archived a second", show_rate),
        _plot(found.lag_ms, "how long the oldest event of a round had waited, at most", show_milliseconds),
        *(
            _plot(bars, f"how long the oldest event of a round had waited, {name}", show_milliseconds)
            for name, bars in found.waited_ms.items()
        ),
        _plot(found.held_bytes, "bytes in the logs of brokers, at most", show_bytes),
        _plot(found.stored_bytes, "bytes of the files of the archive", show_bytes),
        _plot(
            found.written_bytes, "bytes of files that rounds have written, before any was merged", show_bytes
        ),
    ]
    return f'<div class="plots">{"".join(plots)}</div>\n'


def _per_second(bars: Histogram | None) -> Histogram | None:
    """The counts divided by the width of the bars, whose edges are microseconds."""
    if bars is None:
        return None
    width = (bars.edges[1] - bars.edges[0]) / 1e6
    return Histogram(bars.edges, [count / width for count in bars.counts])


def _plot(bars: Histogram | None, what: str, show_count: Callable[[float], str] | None) -> str:
    if bars is None or not any(bars.counts):
        return ""
    chart = bar_chart(bars, lambda at: show_time(at)[5:16].replace("T", " "), what, show_count)
    began = f"{what}; from {show_time(bars.edges[0])} UTC"
    return f"<figure>{chart}<figcaption>{began}</figcaption></figure>"


def _topics(found: ArchiveFigures) -> str:
    rows = "".join(f"<tr>{cells(_topic(each), 4)}</tr>" for each in found.topics)
    head = head_row(["topic", "pubend", "first event", "last event", "events", "a second"], 4)
    return f'<h2>Topics</h2><div class="wide"><table>{head}{rows}</table></div>\n' if rows else ""


def _topic(each: TopicFigures) -> list[str]:
    times = [show_time(each.first), show_time(each.last)]
    return [each.topic, each.pubend, *times, f"{each.events:,}", _rate(each.events, each.last - each.first)]


def _rate(events: int, microseconds: int) -> str:
    return f"{events * 1e6 / microseconds:,.3g}" if microseconds else "-"


def _tables(found: ArchiveFigures) -> str:
    rows = "".join(
        f"<tr>{cells([each.root, f'{each.events:,}', f'{each.files:,}', show_bytes(each.bytes)], 1)}</tr>"
        for each in found.tables
    )
    head = head_row(["table", "events", "files", "size"], 1)
    return f"<h2>Tables</h2><table>{head}{rows}</table>\n" if rows else ""


def _erasures(found: ArchiveFigures) -> str:
    rows = "".join(
        f"<tr>{cells([*_erasure(each), f'{each.events:,}', f'{each.files:,}'], 6)}</tr>"
        for each in found.erasures
    )
    head = head_row(["asked for", "by", "topic", "where", "stage", "erased", "events", "files"], 6)
    return f'<h2>Erasures</h2><div class="wide"><table>{head}{rows}</table></div>\n' if rows else ""


def _erasure(each: ErasureSummary) -> list[str]:
    asked = show_time(each.asked_at * 1e6)
    erased = "-" if each.erased_at is None else show_time(each.erased_at * 1e6)
    return [asked, each.asked_by or "-", each.topic, each.where, each.stage, erased]
