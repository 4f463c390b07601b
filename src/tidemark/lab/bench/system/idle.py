"""Idle: what 10,000 durable subscribers cost a broker while nothing happens, connected and parked.

Afterwards 10 events of each kind are published, and every subscriber must get those that it wants.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic, sleep

from tidemark.lab.bench.processes.harness import BenchTestbed, all_of, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.fanout import subscribing
from tidemark.lab.bench.system.load import PERIOD_EVENTS

KINDS = 100
NOTES = (
    "memory is what the broker's resident set has grown by; CPU is of one core, after things settled",
    "parked: with a lease in place of a connection; the broker calls them when there is an event",
)
#: style of the subscribers -> its name in the report
STYLES = {"lean": "connected", "parked": "parked"}


@dataclass(frozen=True, slots=True)
class IdleEffort:
    """How much is measured."""

    subscribers: int
    settle_seconds: float
    seconds: float


FULL = IdleEffort(10_000, 3.0, 10.0)
QUICK = IdleEffort(500, 1.0, 2.0)


def sections(effort: IdleEffort) -> Iterator[Section]:
    """Yields the section; AssertionError when a subscriber does not get its events afterwards."""
    found: list[Measurement] = []
    for style in STYLES:
        with BenchTestbed() as testbed:
            found += _measured(testbed, effort, style)
    yield Section(f"{effort.subscribers:,} idle durable subscribers", found, notes=NOTES)


def _measured(testbed: BenchTestbed, effort: IdleEffort, style: str) -> list[Measurement]:
    broker = testbed.broker("sync")
    publisher = testbed.worker("publish", url=broker.url, kinds=KINDS)
    workers = subscribing(testbed, effort.subscribers, style, quarter=True, kinds=KINDS)
    memory, began, cpu = broker.rss_bytes, monotonic(), broker.cpu_seconds
    all_of(workers, "come", url=broker.url)
    connecting, connect_cpu = monotonic() - began, broker.cpu_seconds - cpu
    sleep(effort.settle_seconds)
    began, cpu = monotonic(), broker.cpu_seconds
    sleep(effort.seconds)
    idle = (broker.cpu_seconds - cpu) / (monotonic() - began)
    grown = broker.rss_bytes - memory
    events = publisher.ask("fixed", events=PERIOD_EVENTS, batch_events=PERIOD_EVENTS)
    all_of(workers, "check", events=events)
    served = testbed.counters.delivered / (events / KINDS)
    case = f"{STYLES[style]}, sync on {filesystem()}"
    return [
        Measurement(case, "memory", grown / effort.subscribers / 1e3, "kB/subscriber"),
        Measurement(case, "CPU", idle * 100, "% of a core"),
        Measurement(case, "to connect", connecting / effort.subscribers * 1e3, "ms/subscriber"),
        Measurement(case, "broker CPU to connect", connect_cpu / effort.subscribers * 1e3, "ms/subscriber"),
        Measurement(case, "served afterwards", served, "subscribers", Goal("=", effort.subscribers)),
    ]
