"""For each alert of deploy/prometheus: series that cause it, when it must not fire yet, and when it must.

Series are in promtool's notation, a sample each 15 seconds, of the instance "b".
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class AlertCase:
    """The cause of one alert."""

    series: dict[str, str]
    not_yet: str
    fires: str
    #: labels besides `instance` and `severity`
    labels: dict[str, str] = field(default_factory=dict)


def _slow(metric: str, labels: str = "") -> dict[str, str]:
    """A histogram all of whose values are over 0.5 and at most 2.5."""
    return {
        f'{metric}_bucket{{instance="b",{labels}le="0.5"}}': "0x80",
        f'{metric}_bucket{{instance="b",{labels}le="2.5"}}': "0+9x80",
        f'{metric}_bucket{{instance="b",{labels}le="+Inf"}}': "0+9x80",
    }


def _of(**series: str) -> dict[str, str]:
    return {f'tidemark_{name}{{instance="b"}}': values for name, values in series.items()}


CASES = {
    "TidemarkBrokerDown": AlertCase(
        {'up{job="tidemark",instance="b"}': "0x20"}, "30s", "90s", {"job": "tidemark"}
    ),
    "TidemarkAlarm": AlertCase(_of(alarms="1x20"), "30s", "90s"),
    "TidemarkLinkDown": AlertCase(_of(links_up="1x20", links_wanted="2x20"), "30s", "90s"),
    "TidemarkDiskStalls": AlertCase(_of(disk_busy_seconds="6x20"), "0s", "60s"),
    "TidemarkSlowSyncs": AlertCase(_slow("tidemark_sync_seconds", 'which="log",'), "2m", "8m"),
    "TidemarkDiskFillsUp": AlertCase(_of(disk_free_bytes="1e9x80"), "5m", "12m"),
    "TidemarkSlowDelivery": AlertCase(_slow("tidemark_delivery_latency_seconds"), "2m", "8m"),
    "TidemarkGapsTold": AlertCase(_of(gaps_told_total="0 0 0 1x20"), "15s", "2m"),
    "TidemarkSubscriberBehind": AlertCase(
        {'tidemark_lag_seconds{instance="b",subscription="s"}': "4000x80"}, "2m", "6m", {"subscription": "s"}
    ),
    "TidemarkSubscriptionsNotCounted": AlertCase(_of(lag_incomplete="1x80"), "2m", "6m"),
    "TidemarkSlowSubscribers": AlertCase(_of(catchups_slow_total="0+30x80"), "5m", "16m"),
    "TidemarkRecallsStuck": AlertCase(_of(recalls_waiting="1x40", pipelines="0x40"), "1m", "3m"),
    "TidemarkArchiveBehind": AlertCase(_of(archive_lag_seconds="700x80", archive_engine="1x80"), "5m", "11m"),
    "TidemarkArchiveSilent": AlertCase(_of(archive_lag_seconds="1x80"), "5m", "11m"),
    "TidemarkFramesRefused": AlertCase(
        _of(frames_refused_total="0 0 0 1x20", frames_malformed_total="0x20"), "15s", "2m"
    ),
    "TidemarkRestarts": AlertCase(_of(incarnation="1 2 3 4x20"), "30s", "1m"),
}
