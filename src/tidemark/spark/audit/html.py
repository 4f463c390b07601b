"""The audit's report as one page of HTML that needs nothing else: no scripts, no files, no network."""

from __future__ import annotations

from tidemark.spark.audit.report import (
    COUNTS,
    FAULTS,
    PERCENTILES,
    AuditReport,
    Latency,
    SubscriberAccount,
    show_milliseconds,
)
from tidemark.spark.page_parts import bar_chart, cells, document, head_row, safe, show_time


def page(report: AuditReport) -> str:
    """The report as a page of HTML."""
    return document(
        "Tidemark audit",
        f"<h1>{_verdict(report)}</h1>\n"
        f"<p>{report.published:,} events were to be published, {report.acknowledged:,} of them are logged. "
        f"{len(report.accounts):,} subscribers were to get {report.total('matched'):,} and got "
        f"{report.total('delivered'):,}.</p>\n"
        f"{_plots(report)}{_subscribers(report)}{_reasons(report)}{_keys(report)}{_idle(report)}",
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
        began = f"deliveries over time, from {show_time(first)}"
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
    last = cells(["all", "", "", *total, *_percentiles(report.latency)], COUNTS_FROM)
    head = head_row(["subscriber", "topic", "selector", *titles, "p50", "p99"], COUNTS_FROM)
    body = "".join((*rows, f'<tr class="total">{last}</tr>'))
    return f'<h2>Subscribers</h2><div class="wide"><table>{head}{body}</table></div>\n'


#: The first column of the table of subscribers that has numbers; those before it have text.
COUNTS_FROM = 3


def _row(account: SubscriberAccount) -> str:
    counts = [f"{getattr(account, name):,}" for name in COUNTS]
    bad = {COUNTS_FROM + COUNTS.index(fault) for fault in FAULTS if getattr(account, fault)}
    texts = [account.subscriber, account.topic, account.where]
    return f"<tr>{cells([*texts, *counts, *_percentiles(account.latency)], COUNTS_FROM, bad)}</tr>"


def _percentiles(latency: Latency | None) -> list[str]:
    if latency is None:
        return ["-", "-"]
    return [show_milliseconds(latency.percentiles[name] / 1e3) for name in ("p50", "p99")]


def _reasons(report: AuditReport) -> str:
    if not (reasons := report.reasons()):
        return ""
    rows = "".join(
        f"<tr>{cells([reason or '-', f'{gaps:,}', f'{events:,}'], 1)}</tr>"
        for reason, (gaps, events) in sorted(reasons.items())
    )
    return f"<h2>Gaps</h2><table>{head_row(['reason', 'gaps', 'events in them'], 1)}{rows}</table>\n"


def _keys(report: AuditReport) -> str:
    if report.is_clean:
        return ""
    rows = "".join(
        f"<tr>{cells([account.subscriber, fault.replace('_', ' '), ', '.join(keys)], 3)}</tr>"
        for account in report.accounts
        for fault, keys in account.keys.items()
    )
    head = head_row(["subscriber", "fault", "keys of the first events"], 3)
    return f'<h2>Where to look</h2><div class="wide"><table>{head}{rows}</table></div>\n'


def _idle(report: AuditReport) -> str:
    names = ", ".join(map(safe, report.idle))
    return f'<p class="dim">Never subscribed: {names}</p>\n' if report.idle else ""
