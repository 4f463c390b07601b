"""Figure 8 of DSN'03: what subscribers get and how busy the brokers are, over a crash of their host.

The subscribers are counted in five groups, which are machines of their own in the paper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import time

import numpy as np

from tidemark.lab.figures.dsn03.figures import crash_times
from tidemark.lab.figures.estimates import slope_between
from tidemark.lab.figures.experiment import Comparison, Figure, Panel, PlotSeries, Tables
from tidemark.lab.figures.real_overlay import RealOverlay
from tidemark.lab.figures.table import Numbers, Table
from tidemark.lab.processes.process_numbers import cpu_seconds_exact

RECEIVED, BUSY = "received", "busy"
GROUPS = 5
SAMPLE_SECONDS = 0.5
#: Seconds of normal operation that are compared, and what counts as the same part of a core.
NORMAL_SECONDS, ROOM = 5.0, 0.1


class ClientRates:
    """Samples what each group of subscribers has received, and the CPU time that the brokers have taken."""

    def __init__(self, overlay: RealOverlay, start: float) -> None:
        self._overlay = overlay
        self._start = start
        self.received = Table(RECEIVED, ("time_s", "group", "events"))
        self.busy = Table(BUSY, ("time_s", "broker", "cpu_s"))
        #: broker -> CPU time of its lives so far, and of the present one at the last sample
        self._before: dict[str, float] = {}
        self._last: dict[str, float] = {}

    async def watch(self) -> None:
        """Sample until it is cancelled."""
        while True:
            self._sample(time() - self._start)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _sample(self, now: float) -> None:
        for group in range(GROUPS):
            self.received.add(now, group, sum(each.got for each in self._overlay.subscribers[group::GROUPS]))
        for broker in self._overlay.brokers:
            try:
                used = cpu_seconds_exact(broker.pid) if broker.is_running else 0.0
            except OSError:
                used = 0.0  # it was killed just now
            if used < self._last.get(broker.name, 0.0):
                self._before[broker.name] = self._before.get(broker.name, 0.0) + self._last[broker.name]
            self._last[broker.name] = used
            self.busy.add(now, broker.name, self._before.get(broker.name, 0.0) + used)


def _series(tables: Tables, name: str, key: str, which: object, value: str) -> tuple[Numbers, Numbers]:
    rows = tables[name].where(**{key: which})
    return rows.numbers("time_s"), rows.numbers(value)


def _rate(tables: Tables, begin: float, end: float) -> float:
    """Returns the events that a group got a second, on average of all groups."""
    slopes = [
        slope_between(*_series(tables, RECEIVED, "group", group, "events"), begin, end)
        for group in range(GROUPS)
    ]
    return float(np.mean(slopes))


def _idle(tables: Tables, broker: str, begin: float, end: float) -> float:
    return 1 - slope_between(*_series(tables, BUSY, "broker", broker, "cpu_s"), begin, end)


def _draw(tables: Tables) -> Sequence[Panel]:
    at = crash_times(tables)
    spans = [(at.down, at.up, "broker down")]
    rates, idle = [], []
    for group in range(GROUPS):
        times, events = _series(tables, RECEIVED, "group", group, "events")
        rates.append(PlotSeries(f"group {group + 1}", times[1:], np.diff(events) / np.diff(times)))
    for broker in ("phb", "shb"):
        times, cpu = _series(tables, BUSY, "broker", broker, "cpu_s")
        idle.append(PlotSeries(broker, times[1:], 1 - np.diff(cpu) / np.diff(times)))
    return [
        Panel("what subscribers got", "time (s)", "events a second", rates, spans),
        Panel("idle part of a core", "time (s)", "idle", idle, spans),
    ]


def _compare(tables: Tables) -> Sequence[Comparison]:
    at = crash_times(tables)
    # Catching up takes less than a sample here, so whoever looks at it needs a sample on either side.
    caught_up = at.returned + max(tables["returns"].numbers("catchup_s")) + 2 * SAMPLE_SECONDS
    normal, down = (max(0.0, at.down - NORMAL_SECONDS), at.down), (at.down + 1, at.up)
    catching, later = (at.returned, caught_up), (caught_up, at.end)
    rates = [_rate(tables, *span) for span in (normal, down, catching, later)]
    phb = [_idle(tables, "phb", *span) for span in (normal, catching, later)]
    shb = [_idle(tables, "shb", *span) for span in (normal, catching, later)]
    return [
        Comparison(
            "while they catch up, subscribers get more than normally, and normally again afterwards",
            f"{rates[0]:,.0f} events a second and group normally, {rates[1]:,.0f} while the broker is down, "
            f"{rates[2]:,.0f} for {caught_up - at.returned:.1f} s after the return, {rates[3]:,.0f} later",
            rates[2] > rates[0] and abs(rates[3] / rates[0] - 1) <= ROOM,
        ),
        Comparison(
            "the CPU use at the publisher hosting broker is only slightly higher meanwhile",
            f"idle {phb[0]:.0%} normally, {phb[1]:.0%} meanwhile, {phb[2]:.0%} afterwards",
            phb[1] >= phb[0] - ROOM,
            "Catching up takes a second here and minutes in the paper: the same work, all at once.",
        ),
        Comparison(
            "that of the subscriber hosting broker is significantly higher, and normal again afterwards",
            f"idle {shb[0]:.0%} normally, {shb[1]:.0%} meanwhile, {shb[2]:.0%} afterwards",
            shb[1] < shb[0] - ROOM / 2 and abs(shb[2] - shb[0]) <= ROOM,
            "Catching up is over within a sample or two, so that most of the time that is looked at is "
            "normal; a broker that needs less for it is better.",
        ),
    ]


FIGURE = Figure(
    "figure-8",
    "Message rate and idle CPU over a crash of the subscriber hosting broker",
    "DSN'03, figure 8",
    _draw,
    _compare,
)
