"""The command for monitoring: is the broker there and well, and is anybody too far behind?"""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from tidemark.admin import health_checks
from tidemark.admin.broker_snapshot import BrokerSnapshot, take
from tidemark.admin.connection import connect
from tidemark.admin.health_checks import Finding, Limits, State
from tidemark.cli.options import BROKER, JSON, duration
from tidemark.cli.output import emit
from tidemark.errors import TidemarkError

HEALTH_SECONDS_MAX = 3.0


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
    findings, numbers = _look(url, Limits(warning, critical))
    state = health_checks.worst(findings)
    if as_json:
        checks = [finding.describe() for finding in findings]
        emit({"state": state.name.lower(), "code": int(state), "checks": checks, "numbers": numbers})
    else:
        colour = {State.OK: "green", State.WARNING: "yellow", State.CRITICAL: "red"}[state]
        click.echo(click.style(health_checks.plugin_line(findings, numbers), fg=colour))
    sys.exit(int(state))


def _look(url: str, limits: Limits) -> tuple[list[Finding], dict[str, float]]:
    try:
        with connect(url) as tm:
            snapshot = take(tm)
    except TidemarkError as error:
        return [Finding("broker", State.CRITICAL, str(error))], {}
    findings = [
        health_checks.judge_broker(snapshot.status, _problems(snapshot.status["http"])),
        health_checks.judge_links(snapshot.status),
        health_checks.judge_disk(snapshot.metrics),
        health_checks.judge_lag(snapshot.lags, limits),
    ]
    return findings, _numbers(snapshot)


def _numbers(snapshot: BrokerSnapshot) -> dict[str, float]:
    lag = snapshot.lags[0]["lag_seconds"] if snapshot.lags else None
    names = ("clients", "disk_backlog_bytes", "disk_busy_seconds", "queued_bytes")
    return {"lag_seconds": lag or 0.0} | {name: snapshot.metrics[name] for name in names}


def _problems(address: str | None) -> list[str]:
    """What the health page says; nothing where there is none, or it is not for us to see."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    if address is None:
        return []
    try:
        with urlopen(f"http://{address}/health", timeout=HEALTH_SECONDS_MAX) as page:
            body: Any = json.load(page)
    except HTTPError as error:
        with error:
            body = json.load(error)
    except (OSError, ValueError):
        return []
    return list(body["problems"])
