"""The audit's report for a terminal: a table of all subscribers, and remarks below it."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tidemark.message.visible import visible
from tidemark.spark.audit.report import COUNTS, AuditReport, Latency, show_milliseconds

#: A name up to this length is on one line.
NAME_CHARS_MIN = 16


def show(report: AuditReport, console: Console) -> None:
    """Print the whole report but the verdict in words, which the caller prints."""
    console.print(f"published: {report.published:,}, acknowledged: {report.acknowledged:,}")
    console.print(_table(report))
    for line in _remarks(report):
        console.print(escape(line), soft_wrap=True)


def _table(report: AuditReport) -> Table:
    totals = [f"{report.total(name):,}" for name in COUNTS]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    longest = max((len(account.subscriber) for account in report.accounts), default=0)
    table.add_column("subscriber", overflow="fold", min_width=min(longest, NAME_CHARS_MIN))
    for name, total in zip(COUNTS, totals, strict=True):
        # No digit may be cut off, however narrow the terminal is.
        wide = max(len(text) for text in (total, *name.split("_")))
        table.add_column(_title(name), justify="right", min_width=wide)
    for account in report.accounts:
        counts = (f"{getattr(account, name):,}" for name in COUNTS)
        table.add_row(escape(visible(account.subscriber)), *counts, style=None if account.is_clean else "red")
    table.add_section()
    table.add_row("all", *totals, style="bold")
    return table


def _title(name: str) -> str:
    """The title of a count, with its last word below the others, so that all columns fit in 80 characters."""
    *words, last = name.split("_")
    return "\n".join(filter(None, (" ".join(words), last)))


def _remarks(report: AuditReport) -> list[str]:
    """Lines on latency, gaps by reason, keys of faulty events, and ledgers without a subscription."""
    lines = [] if report.latency is None else [_latency_line(report.latency)]
    lines += [
        f"gaps because {reason or 'of no reason given'}: {gaps:,}, with {events:,} events in them"
        for reason, (gaps, events) in sorted(report.reasons().items())
    ]
    for account in report.accounts:
        for fault, keys in account.keys.items():
            more = ", ..." if getattr(account, fault) > len(keys) else ""
            lines.append(f"{account.subscriber}: {fault.replace('_', ' ')}: {', '.join(keys)}{more}")
    if report.idle:
        lines.append(f"never subscribed: {', '.join(report.idle)}")
    return list(map(visible, lines))


def _latency_line(latency: Latency) -> str:
    shown = {**latency.percentiles, "max": latency.most}
    values = ", ".join(f"{name} {show_milliseconds(value / 1e3)}" for name, value in shown.items())
    return f"latency from publisher to subscriber: {values}"
