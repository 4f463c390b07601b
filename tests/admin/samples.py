"""Answers of brokers that the tests of administration share, each with a few fields that a test chooses."""

from __future__ import annotations

from typing import Any

from tidemark.admin.overlay_description import BrokerReport
from tidemark.wire.answers import (
    BrokerStatus,
    LinkStatus,
    PubendStatus,
    Route,
    StreamStatus,
    SubscriptionProgress,
    SubscriptionStatus,
)

METRICS = {
    "clients": 3, "links_up": 1, "links_wanted": 1, "queued_bytes": 0, "disk_backlog_bytes": 2048,
    "disk_free_bytes": 1 << 40, "disk_busy_seconds": 0.0, "events_published": 1000,
}  # fmt: skip
OVERLAY = """
[brokers.e1]
cell = "east"
listen = "127.0.0.1:7001"
pubends = ["orders"]
[brokers.e2]
cell = "east"
listen = "127.0.0.1:7002"
draining = true
[brokers.w1]
cell = "west"
listen = "127.0.0.1:7003"
[bundles.ew]
cells = ["west", "east"]
"""


def status(**changed: Any) -> BrokerStatus:
    found = {
        "broker": "east", "version": "0.1.0", "incarnation": 2, "state": "running", "draining": False,
        "overlay": 0, "started": 5.0, "uptime_seconds": 60.0, "listen": "127.0.0.1:1", "http": None,
        "data_dir": "data", "durability": "sync", "links": {"west": True}, "pubends": (), "alarms": (),
        "clients": 3, "parked": 0, "connections": 3, "links_up": 1, "links_wanted": 1, "queued_bytes": 0,
        "disk_backlog_bytes": 2048, "disk_busy_seconds": 0.0, "disk_free_bytes": 1 << 40,
        "recalls_waiting": 0, "pipelines": 0,
    }  # fmt: skip
    return BrokerStatus(**{**found, **changed})


def pubend(
    name: str, *, last_event: int | None = None, lost: int | None = None, size: int = 0
) -> PubendStatus:
    return PubendStatus(
        pubend=name,
        position=100,
        last_event=last_event,
        lost=lost,
        released=None,
        archived=None,
        bytes=size,
        publishers=1,
    )


def stream(name: str, *followers: str, window_bytes: int = 0, catching_up: int = 0) -> StreamStatus:
    return StreamStatus(
        pubend=name,
        position=100,
        delivered=100,
        synced=100,
        lost=0,
        window_bytes=window_bytes,
        upstream=None,
        followers=followers,
        catching_up=catching_up,
    )


def subscription(
    name: str, lag_us: int | None, *, durable: bool = True, connected: bool = True, recall: str | None = None
) -> SubscriptionStatus:
    pubends = {
        "main": SubscriptionProgress(
            1, 2, 2, lag_us, False, recall, 7 if lag_us else 0, 700 if lag_us else 0
        ),
        "other": SubscriptionProgress(None, None, None, None, True),
    }
    return SubscriptionStatus(name, durable, connected, "t", "", False, 10, "tm1.x", pubends)


def report(at: float, events: int, *, links: dict[str, bool], upstream: str | None) -> BrokerReport:
    return BrokerReport(
        at,
        status(incarnation=1, overlay=2),
        {"events_published": events, "events_delivered": 0},
        [
            LinkStatus(peer, is_up, False, at if is_up else None, 100 * events, events, 0)
            for peer, is_up in links.items()
        ],
        [Route("orders", upstream, ())],
    )


#: Two reports of the brokers of OVERLAY, two seconds apart; the broker e2 does not answer.
REPORTS: tuple[dict[str, BrokerReport | None], ...] = tuple(
    {
        "e1": report(at, int(at * 10), links={"w1": True, "e2": False}, upstream=None),
        "e2": None,
        "w1": report(at, 0, links={"e1": True, "e2": False}, upstream="e1"),
    }
    for at in (1.0, 3.0)
)
