"""The command that shows how far behind durable subscriptions are."""

from __future__ import annotations

import click

from tidemark.admin import connect, overlay_lag
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit, visible_values
from tidemark.cli.watching.screen import draw_overlay_lag, watch


@click.command()
@click.option("--watch", "is_watching", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--interval", type=duration, default="1s", show_default=True, help="How often, with --watch.")
@BROKER
@JSON
def lag(is_watching: bool, interval: float, url: str, as_json: bool) -> None:
    """Show what each durable subscription is owed: the events that matched it and that it has not
    acknowledged, their bytes, and the age of the oldest. All brokers of the overlay are asked.

    With --json a line for each subscription; with --watch too, again every interval.

    \b
    tidemark lag
    tidemark lag --watch
    tidemark lag --json | jq 'select(.owed_events > 1000)'
    """
    with connect(url) as client, Interrupts() as interrupts:

        def draw() -> str:
            return draw_overlay_lag(visible_values(overlay_lag(client, like=url)))

        def emit_all() -> None:
            found = overlay_lag(client, like=url)
            for each in found.lags:
                emit(each)
            for broker, problem in sorted(found.silent.items()):
                emit({"broker": broker, "problem": problem})

        if as_json:
            emit_all()
            while is_watching and interrupts.sleep(interval):
                emit_all()
        elif is_watching:
            watch(draw, interval, interrupts)
        else:
            click.echo(draw())
