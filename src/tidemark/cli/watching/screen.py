"""The text that `lag` and `top` show, and a screen that shows a text again and again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from tidemark.admin import BrokerSnapshot, OverlayLag, SubscriptionLag
from tidemark.admin.numbers import show_bytes, show_seconds
from tidemark.cli.connection import Interrupts
from tidemark.cli.output import table
from tidemark.errors import ClientError
from tidemark.message.visible import visible_lines

SUBSCRIPTIONS_SHOWN_MAX = 10
#: Kinds of frames to one neighbour, of those of which there are most.
KINDS_SHOWN_MAX = 4
#: counter -> its title in `top`, in this order
COUNTERS = {
    "events_published": "published",
    "events_matched": "matched",
    "events_delivered": "delivered",
    "events_expired": "expired",
    "publishes_repeated": "repeated publishes",
    "publishes_refused": "refused publishes",
    "catchups": "catchups begun",
    "nacks_sent": "nacks sent",
    "gaps_told": "gaps told",
}


def draw_lags(lags: Sequence[SubscriptionLag], *, with_broker: bool = False) -> str:
    """Return a table of durable subscriptions and what they are owed."""
    if not lags:
        return "no durable subscriptions here"
    rows = [
        (
            each.name,
            *([each.broker or ""] if with_broker else []),
            _state(each),
            f"{each.owed_events:,}{'' if each.is_exact else '+'}",
            show_bytes(each.owed_bytes),
            show_seconds(each.lag_seconds),
        )
        for each in lags
    ]
    titles = ("subscription", *(["broker"] if with_broker else []), "state", "events", "bytes", "oldest")
    return table(titles, rows, right=range(len(titles) - 3, len(titles)))


def draw_overlay_lag(found: OverlayLag) -> str:
    """Return a table of the durable subscriptions of an overlay, and which brokers did not answer."""
    silent = [
        click.style(f"\n! no answer from {broker}: {problem}", fg="red")
        for broker, problem in sorted(found.silent.items())
    ]
    return draw_lags(found.lags, with_broker=found.brokers > 1) + "".join(silent)


def draw_top(snapshot: BrokerSnapshot) -> str:
    """Return a page about the whole broker."""
    hidden = len(snapshot.lags) - SUBSCRIPTIONS_SHOWN_MAX
    parts = [
        _head(snapshot),
        _counters(snapshot),
        _pubends(snapshot),
        _links(snapshot),
        draw_lags(snapshot.lags[:SUBSCRIPTIONS_SHOWN_MAX]) + (f"\n({hidden} more)" if hidden > 0 else ""),
    ]
    return "\n\n".join(part for part in parts if part)


def watch(draw: Callable[[], str], interval: float, interrupts: Interrupts) -> None:
    """Show what `draw` returns every `interval` seconds until Ctrl-C.

    On a terminal each text takes the place of the one before; elsewhere they are printed one after the other.
    A ClientError of `draw` is shown in place of the text and does not end the loop, because people who watch
    a broker want to see it return.
    """

    def drawn() -> str:
        try:
            return draw()
        except ClientError as error:
            return click.style(visible_lines(str(error)), fg="red")

    if not sys.stdout.isatty():
        click.echo(drawn())
        while interrupts.sleep(interval):
            click.echo("\n" + drawn())
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(Text.from_ansi(drawn()), console=Console(), screen=True, auto_refresh=False) as live:
        while interrupts.sleep(interval):
            live.update(Text.from_ansi(drawn()), refresh=True)


def _state(lag: SubscriptionLag) -> str:
    if not lag.connected:
        return click.style("away", fg="yellow")
    if lag.recall == "waiting":
        return click.style("waiting for the archive", fg="red")
    return click.style("catching up", fg="cyan") if lag.catching_up else click.style("live", fg="green")


def _head(snapshot: BrokerSnapshot) -> str:
    status, metrics = snapshot.status, snapshot.metrics
    colour = "green" if status.state == "running" else "red"
    alarms = "".join(click.style(f"\n! {each}", fg="red") for each in status.alarms)
    return (
        f"{click.style(status.broker, bold=True)} at {status.listen}  "
        f"{click.style(status.state, fg=colour)} for {show_seconds(status.uptime_seconds)}  "
        f"incarnation {status.incarnation}  {status.durability}\n"
        f"clients {metrics['clients']:,.0f}  links {metrics['links_up']:.0f}/{metrics['links_wanted']:.0f}  "
        f"queued {show_bytes(metrics['queued_bytes'])}  "
        f"disk backlog {show_bytes(metrics['disk_backlog_bytes'])}, "
        f"busy {show_seconds(metrics['disk_busy_seconds'])}{alarms}"
    )


def _counters(snapshot: BrokerSnapshot) -> str:
    rows = [
        (
            title,
            f"{snapshot.rates[name]:,.0f}" if name in snapshot.rates else "-",
            f"{snapshot.metrics[name]:,.0f}",
        )
        for name, title in COUNTERS.items()
        if name in snapshot.metrics
    ]
    return table(("events", "a second", "in all"), rows, right=[1, 2])


def _links(snapshot: BrokerSnapshot) -> str:
    """What is sent to each neighbour, by the kind of frame, the most frequent first."""
    rows = []
    for peer, kinds in sorted(snapshot.link_rates.items()):
        busy = sorted(((rates, kind) for kind, rates in kinds.items() if rates[0]), reverse=True)
        for at, ((frames, size), kind) in enumerate(busy[:KINDS_SHOWN_MAX]):
            rows.append((peer if at == 0 else "", kind, f"{frames:,.1f}", f"{show_bytes(size)}/s"))
    return table(("sent to", "frames", "a second", "bytes"), rows, right=[2, 3]) if rows else ""


def _pubends(snapshot: BrokerSnapshot) -> str:
    hosted = {each.pubend: each for each in snapshot.pubends}
    rows = []
    for stream in snapshot.streams:
        pubend = hosted.get(stream.pubend)
        rows.append(
            (
                stream.pubend,
                "here" if pubend else "elsewhere",
                show_bytes(pubend.bytes) if pubend else "-",
                show_bytes(stream.window_bytes),
                f"{stream.catching_up:,}",
            )
        )
    titles = ("pubend", "hosted", "log", "in memory", "catching up")
    return table(titles, rows, right=[2, 3, 4]) if rows else ""
