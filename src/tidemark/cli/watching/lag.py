"""The command that shows how far behind durable subscriptions are."""

from __future__ import annotations

import click

from tidemark.admin import ANSWER_SECONDS, SUBSCRIPTIONS, SubscriptionLag, connect, lags_of
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit, visible_values
from tidemark.cli.watching.screen import draw_lags, watch


@click.command()
@click.option("--watch", "is_watching", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--interval", type=duration, default="1s", show_default=True, help="How often, with --watch.")
@BROKER
@JSON
def lag(is_watching: bool, interval: float, url: str, as_json: bool) -> None:
    """Show how far behind each durable subscription is: the time between the last event that was delivered
    at this broker and the last one that the subscriber has acknowledged.

    With --json a line for each subscription; with --watch too, again every interval.

    \b
    tidemark lag
    tidemark lag --watch
    tidemark lag --json | jq 'select(.lag_seconds > 60)'
    """
    with connect(url) as client, Interrupts() as interrupts:

        def lags() -> list[SubscriptionLag]:
            return lags_of(client.ask(SUBSCRIPTIONS, timeout=ANSWER_SECONDS))

        def draw() -> str:
            return draw_lags(visible_values(lags()))

        def emit_all() -> None:
            for each in lags():
                emit(each)

        if as_json:
            emit_all()
            while is_watching and interrupts.sleep(interval):
                emit_all()
        elif is_watching:
            watch(draw, interval, interrupts)
        else:
            click.echo(draw())
