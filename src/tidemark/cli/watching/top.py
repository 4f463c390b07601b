"""The command that shows what a broker is doing, live."""

from __future__ import annotations

import click

from tidemark.admin import BrokerSnapshot, connect, take_snapshot
from tidemark.cli.connection import Interrupts
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit, visible_values
from tidemark.cli.watching.screen import draw_top, watch


@click.command()
@click.option("--once", is_flag=True, help="Show it once, with rates over one interval, and end.")
@click.option("--interval", type=duration, default="1s", show_default=True, help="How often.")
@BROKER
@JSON
def top(once: bool, interval: float, url: str, as_json: bool) -> None:
    """Show what the broker is doing: rates, pubends, links, and who is furthest behind. Ctrl-C ends it.

    With --json one object an interval: status, metrics, rates, pubends, streams, lags, links, link_rates.

    \b
    tidemark top
    tidemark top --once --interval 5s
    tidemark top --once --json | jq .rates.events_published
    """
    with connect(url) as client, Interrupts() as interrupts:
        latest = take_snapshot(client)

        def draw() -> str:
            nonlocal latest
            latest = take_snapshot(client, latest)
            return draw_top(visible_values(latest))

        if not once and not as_json:
            watch(draw, interval, interrupts)
            return
        while interrupts.sleep(interval):
            latest = take_snapshot(client, latest)
            if as_json:
                emit(_described(latest))
            else:
                click.echo(draw_top(visible_values(latest)))
            if once:
                return


def _described(snapshot: BrokerSnapshot) -> dict[str, object]:
    return {
        "status": snapshot.status,
        "metrics": snapshot.metrics,
        "rates": {name: round(rate, 3) for name, rate in snapshot.rates.items()},
        "pubends": snapshot.pubends,
        "streams": snapshot.streams,
        "lags": snapshot.lags,
        "links": snapshot.links,
        "link_rates": {
            peer: {
                kind: {"frames": round(frames, 3), "bytes": round(size, 1)}
                for kind, (frames, size) in kinds.items()
            }
            for peer, kinds in snapshot.link_rates.items()
        },
    }
