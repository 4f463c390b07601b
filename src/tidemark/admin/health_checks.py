"""Health checks of a broker, with the states and the line of text that monitoring plugins use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tidemark.admin.broker_snapshot import BrokerSnapshot, take_snapshot
from tidemark.admin.connection import connect
from tidemark.admin.numbers import show_bytes, show_seconds
from tidemark.admin.overlay_lag import OverlayLag, overlay_lag
from tidemark.errors import TidemarkError
from tidemark.wire.answers import BrokerStatus
from tidemark.wire.json_objects import JsonObject

#: While one disk operation takes longer than this, the broker acknowledges nothing.
DISK_BUSY_SECONDS_MAX = 10.0
#: Less free space is a warning; less than the second is critical, since publishing is refused soon.
DISK_FREE_BYTES_FEW = 1 << 30
DISK_FREE_BYTES_LEAST = 128 << 20
HEALTH_PAGE_SECONDS_MAX = 3.0


class HealthState(IntEnum):
    """How bad it is; the values are the exit codes of monitoring plugins."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding(JsonObject):
    """The result of one check."""

    check: str
    state: HealthState
    text: str

    def json_items(self) -> dict[str, object]:
        """The state by its name."""
        return {"check": self.check, "state": self.state.name.lower(), "text": self.text}


@dataclass(frozen=True, slots=True)
class LagLimits:
    """Seconds of lag beyond which the state is a warning, or critical; None: no such limit."""

    warning: float | None = None
    critical: float | None = None


@dataclass(frozen=True, slots=True)
class Health(JsonObject):
    """The results of all checks of a broker, and the numbers that they were made of."""

    findings: tuple[Finding, ...]
    numbers: Mapping[str, float]

    @property
    def state(self) -> HealthState:
        """The worst state of any finding."""
        return worst_state(self.findings)

    def json_items(self) -> dict[str, object]:
        """With the state of the whole by its name and by its code."""
        state = self.state
        return {
            "state": state.name.lower(),
            "code": int(state),
            "checks": self.findings,
            "numbers": self.numbers,
        }

    def plugin_line(self) -> str:
        """Return the line that monitoring systems read: the state, the worst findings, and the numbers."""
        return plugin_line(self.findings, self.numbers)


def check_health(url: str, limits: LagLimits | None = None) -> Health:
    """Ask a broker how it is and check all there is to check; a broker that does not answer is critical."""
    try:
        with connect(url) as client:
            snapshot = take_snapshot(client)
            lag = overlay_lag(client, snapshot.subscriptions, like=url)
    except TidemarkError as error:
        return Health((Finding("broker", HealthState.CRITICAL, str(error)),), {})
    findings = (
        check_broker(snapshot.status, read_health_page(snapshot.status.http)),
        check_links(snapshot.status),
        check_disk(snapshot.metrics),
        check_lag(lag, limits or LagLimits()),
    )
    return Health(findings, _numbers(snapshot, lag))


def worst_state(findings: Sequence[Finding]) -> HealthState:
    """Return the worst state of the findings; OK if there is none."""
    return max((finding.state for finding in findings), default=HealthState.OK)


def check_broker(status: BrokerStatus, problems: Sequence[str]) -> Finding:
    """Check that a broker takes and acknowledges events; `problems` is what its health page says."""
    name = status.broker
    if status.state != "running":
        return Finding("broker", HealthState.CRITICAL, f"{name} is {status.state}")
    if problems:
        return Finding("broker", HealthState.CRITICAL, f"{name}: {'; '.join(problems)}")
    if status.alarms:
        return Finding("broker", HealthState.WARNING, f"{name}: {'; '.join(status.alarms)}")
    uptime = show_seconds(status.uptime_seconds)
    return Finding("broker", HealthState.OK, f"{name} is running for {uptime}")


def check_links(status: BrokerStatus) -> Finding:
    """Check that the links to all neighbours are up."""
    down = sorted(peer for peer, is_up in status.links.items() if not is_up)
    if down:
        return Finding("links", HealthState.WARNING, f"no link to {', '.join(down)}")
    return Finding("links", HealthState.OK, f"{len(status.links)} of {len(status.links)} up")


def check_disk(metrics: Mapping[str, float]) -> Finding:
    """Check that the disk keeps up and has room."""
    busy, backlog, free = (
        metrics[f"disk_{name}"] for name in ("busy_seconds", "backlog_bytes", "free_bytes")
    )
    text = f"busy for {show_seconds(busy)}, {show_bytes(backlog)} on their way, {show_bytes(free)} free"
    if busy > DISK_BUSY_SECONDS_MAX or free < DISK_FREE_BYTES_LEAST:
        return Finding("disk", HealthState.CRITICAL, text)
    return Finding("disk", HealthState.WARNING if free < DISK_FREE_BYTES_FEW else HealthState.OK, text)


def check_lag(found: OverlayLag, limits: LagLimits) -> Finding:
    """Check that no durable subscription of the overlay is owed events that are too old."""
    lag, text = 0.0, "no durable subscriptions"
    if found.lags:
        worst = found.lags[0]
        lag, text = worst.lag_seconds or 0.0, "nobody is behind"
        if lag:
            amount = f"{worst.owed_events:,}{'' if worst.is_exact else '+'}"
            text = f"{worst.name} is owed {amount} events, the oldest of {show_seconds(lag)} ago"
    if found.silent:
        text += f"; no answer from {', '.join(sorted(found.silent))}"
    if limits.critical is not None and lag > limits.critical:
        return Finding("lag", HealthState.CRITICAL, text)
    if found.silent or (limits.warning is not None and lag > limits.warning):
        return Finding("lag", HealthState.WARNING, text)
    return Finding("lag", HealthState.OK, text)


def plugin_line(findings: Sequence[Finding], numbers: Mapping[str, float]) -> str:
    """Return the line that monitoring systems read: the state, the worst findings, and the numbers."""
    state = worst_state(findings)
    shown = [finding for finding in findings if finding.state == state] if state else findings
    text = ", ".join(f"{finding.check}: {finding.text}" for finding in shown)
    data = " ".join(f"{name}={value:g}" for name, value in numbers.items())
    return f"TIDEMARK {state.name} - {text}" + (f" | {data}" if data else "")


def read_health_page(address: str | None) -> list[str]:
    """Return the problems on the health page at HOST:PORT; none if there is no page, or none for us."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    if address is None:
        return []
    try:
        with urlopen(f"http://{address}/health", timeout=HEALTH_PAGE_SECONDS_MAX) as page:
            body = json.load(page)
    except HTTPError as error:
        with error:
            body = json.load(error)
    except (OSError, ValueError):
        return []
    return list(body["problems"])


def _numbers(snapshot: BrokerSnapshot, lag: OverlayLag) -> dict[str, float]:
    names = ("clients", "disk_backlog_bytes", "disk_busy_seconds", "queued_bytes")
    return {
        "lag_seconds": max((each.lag_seconds or 0.0 for each in lag.lags), default=0.0),
        "lag_events": sum(each.owed_events for each in lag.lags),
        "lag_bytes": sum(each.owed_bytes for each in lag.lags),
    } | {name: snapshot.metrics[name] for name in names}
