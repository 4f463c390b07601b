"""Storage: bytes on disk for an event that 40 durable subscribers, all away, have not got yet."""

from __future__ import annotations

from time import sleep

from tidemark.lab.bench.processes.harness import BenchTestbed, all_of, filesystem
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.fanout import KINDS, subscribing

BYTES_AN_EVENT = 300
#: Longer than the intervals at which the PFS and the tables are written.
SETTLE_SECONDS = 0.6
NOTES = (
    "all files of the data directory, as large as they are or as the blocks set aside for them",
    "an event by itself carries the header of its batch and log record alone: no goal for batches of 1",
)


def measured_storage(testbed: BenchTestbed, batch_events: int, events: int, subscribers: int) -> Section:
    """Measure the bytes of an event; then all subscribers return and must get everything."""
    broker = testbed.broker("os")
    publisher = testbed.worker("publish", url=broker.url, kinds=KINDS)
    workers = subscribing(testbed, subscribers, "lean", quarter=True)
    all_of(workers, "come", url=broker.url)
    all_of(workers, "leave")
    before = broker.disk_bytes
    published = publisher.ask("fixed", events=events, batch_events=batch_events)
    sleep(SETTLE_SECONDS)
    on_disk = broker.disk_bytes
    all_of(workers, "come", url=broker.url)
    all_of(workers, "check", events=published)
    case = f"batches of {batch_events}"
    goal = Goal("<=", BYTES_AN_EVENT) if batch_events > 1 else None
    measurements = [
        Measurement(case, "on disk", on_disk / published, "bytes/event", goal),
        Measurement(case, "without what was there before", (on_disk - before) / published, "bytes/event"),
    ]
    title = f"{published:,} events of 250 bytes on {filesystem()}, {subscribers} durable subscribers away"
    return Section(title, measurements, notes=NOTES, prefix="storage")
