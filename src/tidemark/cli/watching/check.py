"""The command for monitoring systems: is the broker healthy, and is a subscription too far behind?"""

from __future__ import annotations

import sys

import click

from tidemark.admin import HealthState, LagLimits, check_health
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit
from tidemark.message.visible import visible

_COLOURS = {HealthState.OK: "green", HealthState.WARNING: "yellow", HealthState.CRITICAL: "red"}


@click.command()
@click.option("--max-lag", "warning", type=duration, help="A subscription further behind is a warning.")
@click.option("--critical-lag", "critical", type=duration, help="One further behind than this is critical.")
@BROKER
@JSON
def check(warning: float | None, critical: float | None, url: str, as_json: bool) -> None:
    """Check that the broker answers, is healthy, has its links, that its disk keeps up and nobody lags.

    Made for monitoring systems: one line, with numbers behind a bar. Exit codes: 0 ok, 1 warning, 2 critical.

    \b
    tidemark check
    tidemark check --max-lag 30s --critical-lag 10m
    tidemark check --json
    """
    health = check_health(url, LagLimits(warning, critical))
    if as_json:
        emit(health)
    else:
        click.echo(click.style(visible(health.plugin_line()), fg=_COLOURS[health.state]))
    sys.exit(int(health.state))
