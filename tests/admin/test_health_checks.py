"""Health checks: what is a warning, what is critical, and the line that monitoring systems read."""

from __future__ import annotations

import pytest

from tests.admin.samples import METRICS, status, subscription
from tidemark.admin.broker_snapshot import lags_of
from tidemark.admin.health_checks import (
    DISK_FREE_BYTES_FEW,
    DISK_FREE_BYTES_LEAST,
    Finding,
    Health,
    HealthState,
    LagLimits,
    check_broker,
    check_disk,
    check_health,
    check_lag,
    check_links,
    plugin_line,
    worst_state,
)
from tidemark.admin.overlay_lag import OverlayLag
from tidemark.wire.json_objects import dumps

LATE = OverlayLag(tuple(lags_of([subscription("late", 60_000_000)])), {}, 1)


def test_a_broker_is_as_healthy_as_its_state_its_health_page_and_its_alarms() -> None:
    assert check_broker(status(), []) == Finding("broker", HealthState.OK, "east is running for 60 s")
    assert check_broker(status(alarms=("look",)), []).state is HealthState.WARNING
    assert check_broker(status(), ["the disk is full"]).state is HealthState.CRITICAL
    assert check_broker(status(state="stopping"), []).state is HealthState.CRITICAL


def test_a_link_that_is_down_is_a_warning_that_names_the_neighbour() -> None:
    assert check_links(status(links={"west": True})).state is HealthState.OK
    down = check_links(status(links={"west": False, "north": True}))
    assert down == Finding("links", HealthState.WARNING, "no link to west")


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({}, HealthState.OK),
        ({"disk_busy_seconds": 11.0}, HealthState.CRITICAL),
        ({"disk_free_bytes": DISK_FREE_BYTES_FEW - 1}, HealthState.WARNING),
        ({"disk_free_bytes": DISK_FREE_BYTES_LEAST - 1}, HealthState.CRITICAL),
    ],
)
def test_a_disk_that_is_stuck_or_nearly_full_is_found(changed: dict[str, float], state: HealthState) -> None:
    assert check_disk({**METRICS, **changed}).state is state


def test_a_lag_counts_beyond_its_limit_and_not_at_it() -> None:
    assert check_lag(LATE, LagLimits()).state is HealthState.OK
    assert check_lag(LATE, LagLimits(warning=60.0)).state is HealthState.OK
    assert check_lag(LATE, LagLimits(warning=59.0)).state is HealthState.WARNING
    assert check_lag(LATE, LagLimits(1.0, 2.0)).state is HealthState.CRITICAL
    assert check_lag(OverlayLag((), {}, 1), LagLimits(1.0, 2.0)).text == "no durable subscriptions"
    new = OverlayLag(tuple(lags_of([subscription("new", None)])), {}, 1)
    assert check_lag(new, LagLimits(0.0)).text == "nobody is behind"
    assert check_lag(OverlayLag((), {"w2": "refused"}, 2), LagLimits()) == Finding(
        "lag", HealthState.WARNING, "no durable subscriptions; no answer from w2"
    )


def test_the_whole_is_as_bad_as_its_worst_finding() -> None:
    findings = (check_broker(status(), []), check_lag(LATE, LagLimits(warning=1.0)))
    assert worst_state(findings) is HealthState.WARNING
    assert worst_state(()) is HealthState.OK
    line = "TIDEMARK WARNING - lag: late is owed 7 events, the oldest of 60 s ago | lag=60"
    assert plugin_line(findings, {"lag": 60.0}) == line
    health = Health(findings, {"lag": 60.0})
    assert health.plugin_line() == line
    assert dumps(health) == (
        '{"state": "warning", "code": 1, "checks": ['
        '{"check": "broker", "state": "ok", "text": "east is running for 60 s"}, '
        '{"check": "lag", "state": "warning", "text": "late is owed 7 events, the oldest of 60 s ago"}], '
        '"numbers": {"lag": 60.0}}'
    )


def test_a_broker_that_cannot_be_reached_is_critical(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.admin.connection.CONNECT_SECONDS", 0.05)
    health = check_health("tidemark://127.0.0.1:1")
    assert health.state is HealthState.CRITICAL
    assert [finding.check for finding in health.findings] == ["broker"]
    assert health.numbers == {}
