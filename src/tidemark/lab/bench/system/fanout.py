"""Fan-out: 100 durable subscribers that are all there, each taking a quarter of the events by a selector.

The publisher sends batches, and limits the events that some subscriber has not got yet, so that live delivery
is measured and not catching up. Rate and broker CPU are those of the middle of the run; afterwards each
subscriber must have got exactly its events, once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tidemark.lab.bench.peers.catalogue import TIDEMARK
from tidemark.lab.bench.processes.harness import (
    BenchProcess,
    BenchTestbed,
    WorkerProcess,
    all_of,
    events_a_frame,
    filesystem,
    measure_deliveries,
    wait_until,
)
from tidemark.lab.bench.report import Goal, Measurement, Section
from tidemark.lab.bench.system.load import Kind

DELIVERIES_A_SECOND = 1.5e6
#: The goal for batches of at most so many events.
SMALL_BATCH = 100
SMALL_DELIVERIES_A_SECOND = 3e6
CPU_SECONDS_A_MILLION = 0.5
KINDS = 4
#: Events on their way to some subscriber: a quarter of them fits well into a subscriber's credit.
WINDOW_EVENTS = 16_000
#: Events that the baseline's publisher has not heard an acknowledgement of.
UNDER_WAY_EVENTS = 16 * SMALL_BATCH
#: Up to this many subscribers are in one process, more in two.
SUBSCRIBERS_ALONE_MAX = 10
NOTES = (
    "250-byte events; subscribers in 2 processes, a connection each; goals are for sync durability",
    "lean: bare frames and a ledger; client: batches() of the client, acknowledged by itself",
    "baseline: a server in Python that appends, syncs and passes the same bytes on to the same subscribers, "
    "and does no more; its publisher is a bare socket",
)


@dataclass(frozen=True, slots=True)
class FanoutCase:
    """How one case is run."""

    durability: str
    style: str
    #: events in a published batch
    batch: int

    def __str__(self) -> str:
        return f"{self.durability} on {filesystem()}, {self.style}, batches of {self.batch:,}"


@dataclass(frozen=True, slots=True)
class FanoutEffort:
    """How much is measured."""

    cases: tuple[FanoutCase, ...]
    subscribers: int
    warm_seconds: float
    seconds: float


FULL = FanoutEffort(
    (
        FanoutCase("sync", "lean", 2_000),
        FanoutCase("sync", "lean", 400),
        FanoutCase("sync", "lean", 100),
        FanoutCase("sync", "client", 2_000),
        FanoutCase("os", "lean", 2_000),
    ),
    100,
    1.0,
    4.0,
)
QUICK = FanoutEffort((FanoutCase("sync", "lean", 2_000), FanoutCase("os", "client", 2_000)), 100, 0.5, 1.0)


def sections(effort: FanoutEffort) -> Iterator[Section]:
    """Yields the sections; AssertionError when a subscriber got anything but its events."""
    for case in effort.cases:
        with BenchTestbed() as testbed:
            title = f"fan-out to {effort.subscribers} durable subscribers, a quarter of the events each"
            yield Section(title, _measured(testbed, case, effort), notes=NOTES)
        if case.batch <= SMALL_BATCH:
            with BenchTestbed() as testbed:
                yield Section(title, _baseline(testbed, case, effort), notes=NOTES[2:])


@dataclass(frozen=True, slots=True)
class _Flow:
    """What was measured: deliveries a second, and the CPU of each process for a million of them."""

    rate: float
    cpu: list[float]
    frame_events: float


def _flowing(
    testbed: BenchTestbed,
    server: BenchProcess,
    url: str,
    publisher: WorkerProcess,
    case: FanoutCase,
    effort: FanoutEffort,
    **given: int,
) -> _Flow:
    """Let events flow from the publisher through a server to lean or client subscribers."""
    workers = subscribing(testbed, effort.subscribers, case.style, quarter=True)
    all_of(workers, "come", url=url)
    share = effort.subscribers // KINDS
    window = {"workers": len(workers), "window_events": WINDOW_EVENTS, **given}
    publisher.request("fan_out", batch_events=case.batch, share=share, **window)
    assert wait_until(lambda: testbed.counters.delivered > 0), "nothing is delivered"
    processes = (server, publisher, *workers)
    flow = measure_deliveries(testbed.counters, processes, effort.warm_seconds, effort.seconds)
    found = all_of(workers, "check", events=publisher.answer())
    a_million = 1e6 / max(flow.delivered, 1)
    return _Flow(flow.rate, [each * a_million for each in flow.cpu_seconds], events_a_frame(found))


def _baseline(testbed: BenchTestbed, case: FanoutCase, effort: FanoutEffort) -> list[Measurement]:
    """Measure the same with a server that does nothing but to pass bytes on."""
    server = testbed.worker("bulk server", path=str(testbed.path / "baseline"), durability=case.durability)
    url = server.ask("url")
    publisher = testbed.worker("peer publisher", peer=TIDEMARK, url=url, kinds=KINDS)
    lean = replace(case, style="lean")
    flow = _flowing(testbed, server, url, publisher, lean, effort, under_way=UNDER_WAY_EVENTS)
    name = f"baseline, {lean}"
    return [
        Measurement(name, "deliveries", flow.rate, "/s"),
        Measurement(name, "server CPU", flow.cpu[0], "s/million"),
        Measurement(name, "publisher CPU", flow.cpu[1], "s/million"),
        Measurement(name, "subscribers' CPU", sum(flow.cpu[2:]), "s/million"),
        Measurement(name, "events a delivery frame", flow.frame_events, "events"),
    ]


def _measured(testbed: BenchTestbed, case: FanoutCase, effort: FanoutEffort) -> list[Measurement]:
    broker = testbed.broker(case.durability)
    publisher = testbed.worker("publish", url=broker.url, kinds=KINDS)
    flow = _flowing(testbed, broker, broker.url, publisher, case, effort)
    goals = case.durability == "sync"
    wanted = SMALL_DELIVERIES_A_SECOND if case.batch <= SMALL_BATCH else DELIVERIES_A_SECOND
    rate, cost = Goal(">=", wanted), Goal("<=", CPU_SECONDS_A_MILLION)
    return [
        Measurement(str(case), "deliveries", flow.rate, "/s", rate if goals else None),
        Measurement(str(case), "broker CPU", flow.cpu[0], "s/million", cost if goals else None),
        Measurement(str(case), "broker busy", flow.cpu[0] * flow.rate / 1e6, "cores"),
        Measurement(str(case), "publisher CPU", flow.cpu[1], "s/million"),
        Measurement(str(case), "subscribers' CPU", sum(flow.cpu[2:]), "s/million"),
        Measurement(str(case), "events a delivery frame", flow.frame_events, "events"),
    ]


def subscribing(
    testbed: BenchTestbed,
    subscribers: int,
    style: str,
    *,
    quarter: bool,
    kinds: int = KINDS,
    first: int = 0,
    pubends: int = 1,
) -> list[WorkerProcess]:
    """Start one or two workers with `subscribers` subscribers, of one kind each (`quarter`) or of all.

    Their names and kinds are numbered from `first` on.
    """
    wanted: list[tuple[str, Kind]] = [
        (f"subscriber-{number}", number % kinds if quarter else None)
        for number in range(first, first + subscribers)
    ]
    half = subscribers // 2 if subscribers > SUBSCRIBERS_ALONE_MAX else subscribers
    parts = [part for part in (wanted[:half], wanted[half:]) if part]
    return [
        testbed.worker(
            "subscribe", worker=worker, style=style, kinds=kinds, subscribers=part, pubends=pubends
        )
        for worker, part in enumerate(parts)
    ]
