"""The verdict of `tidemark check`: what is looked at, and how bad it is, as monitoring plugins say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from tidemark.admin.numbers import show_bytes, show_seconds

#: A disk that is at one thing for longer does not acknowledge anything.
DISK_BUSY_SECONDS_MAX = 10.0
#: With less room than this somebody should look; with less than that publishing will soon be refused.
DISK_FREE_BYTES_FEW = 1 << 30
DISK_FREE_BYTES_LEAST = 128 << 20


class State(IntEnum):
    """Also the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    text: str

    def describe(self) -> dict[str, Any]:
        """For JSON."""
        return {"check": self.what, "state": self.state.name.lower(), "text": self.text}


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of lag from which it is a warning, or critical; None: any lag will do."""

    warning: float | None = None
    critical: float | None = None


def worst(findings: Sequence[Finding]) -> State:
    """The state of the whole."""
    return max((finding.state for finding in findings), default=State.OK)


def judge_broker(status: Mapping[str, Any], problems: Sequence[str]) -> Finding:
    """Does it take and acknowledge events? `problems` is what its health page says."""
    name = status["broker"]
    if status["state"] != "running":
        return Finding("broker", State.CRITICAL, f"{name} is {status['state']}")
    if problems:
        return Finding("broker", State.CRITICAL, f"{name}: {'; '.join(problems)}")
    if status["alarms"]:
        return Finding("broker", State.WARNING, f"{name}: {'; '.join(status['alarms'])}")
    return Finding("broker", State.OK, f"{name} is running for {show_seconds(status['uptime_seconds'])}")


def judge_links(status: Mapping[str, Any]) -> Finding:
    """Is every neighbour there?"""
    down = sorted(peer for peer, is_up in status["links"].items() if not is_up)
    if down:
        return Finding("links", State.WARNING, f"no link to {', '.join(down)}")
    return Finding("links", State.OK, f"{len(status['links'])} of {len(status['links'])} up")


def judge_disk(metrics: Mapping[str, float]) -> Finding:
    """Does the disk keep up?"""
    busy, backlog, free = (
        metrics[f"disk_{name}"] for name in ("busy_seconds", "backlog_bytes", "free_bytes")
    )
    text = f"busy for {show_seconds(busy)}, {show_bytes(backlog)} on their way, {show_bytes(free)} free"
    if busy > DISK_BUSY_SECONDS_MAX or free < DISK_FREE_BYTES_LEAST:
        return Finding("disk", State.CRITICAL, text)
    return Finding("disk", State.WARNING if free < DISK_FREE_BYTES_FEW else State.OK, text)


def judge_lag(lags: Sequence[Mapping[str, Any]], limits: Limits) -> Finding:
    """Is anybody too far behind? `lags` has the furthest first."""
    if not lags:
        return Finding("lag", State.OK, "no durable subscriptions")
    lag = lags[0]["lag_seconds"] or 0.0
    text = f"{lags[0]['name']} is {show_seconds(lag)} behind" if lag else "nobody is behind"
    if limits.critical is not None and lag > limits.critical:
        return Finding("lag", State.CRITICAL, text)
    if limits.warning is not None and lag > limits.warning:
        return Finding("lag", State.WARNING, text)
    return Finding("lag", State.OK, text)


def plugin_line(findings: Sequence[Finding], numbers: Mapping[str, float]) -> str:
    """The line that monitoring systems read: the state, the worst finding first, and numbers."""
    state = worst(findings)
    shown = [finding for finding in findings if finding.state == state] if state else findings
    text = ", ".join(f"{finding.what}: {finding.text}" for finding in shown)
    data = " ".join(f"{name}={value:g}" for name, value in numbers.items())
    return f"TIDEMARK {state.name} - {text}" + (f" | {data}" if data else "")
