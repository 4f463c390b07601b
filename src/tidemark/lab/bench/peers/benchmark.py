"""Peers: the same workloads against other systems that are installed, in turns with Tidemark.

Each workload is run by every system, one after the other, and then once more; the best of its runs counts.
Clients are bare sockets in the form that suits a system best (`protocols`). Every run checks that each
subscriber got exactly its events, once and in order, and that no more was acknowledged than was published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from time import monotonic, sleep

from tidemark.lab.bench.peers.catalogue import PEERS, TIDEMARK, Peer
from tidemark.lab.bench.peers.servers import SERVERS, PeerProcess
from tidemark.lab.bench.processes.harness import (
    BenchBroker,
    BenchTestbed,
    TooSlowError,
    WorkerProcess,
    all_of,
    filesystem,
    measure_deliveries,
    wait_until,
)
from tidemark.lab.bench.processes.publishers import bare_round
from tidemark.lab.bench.report import Measurement, Section
from tidemark.lab.bench.system.fanout import KINDS, WINDOW_EVENTS, subscribing

BATCH_EVENTS = 100
UNDER_WAY_EVENTS = 1_000
EVENTS_A_SECOND = 200
#: Longer than the intervals at which a broker writes its PFS and its tables.
SETTLE_SECONDS = 0.6
#: Seconds between the runs of two systems, in which the disk and the page cache settle.
BETWEEN_SECONDS = 0.5
NOTES = (
    "250-byte events, batches of 100 with 1,000 under way; best of the rounds; one server at a time",
    "exactness: each subscriber's events were checked by number, sum, squares and order",
)

Server = BenchBroker | PeerProcess
#: metric -> value, of one run of a workload
Found = dict[str, float]
Workload = Callable[[BenchTestbed, Peer, "PeersEffort"], Found]
#: Metrics of which more is better; of all others less is.
_MORE = ("deliveries/s", "events/s")


@dataclass(frozen=True, slots=True)
class PeersEffort:
    """How much is measured."""

    #: names of the systems; those that are not installed are named in a note
    peers: tuple[str, ...]
    rounds: int
    fan_out: int
    warm_seconds: float
    seconds: float
    #: events published one at a time, and at 200 a second
    singles: int
    paced: int
    returning: int
    missed: int


FULL = PeersEffort(tuple(PEERS), 2, 100, 0.7, 2.0, 400, 1_000, 40, 40_000)
QUICK = PeersEffort(tuple(PEERS), 1, 100, 0.3, 0.7, 100, 200, 40, 8_000)


def sections(effort: PeersEffort) -> Iterator[Section]:
    """Yields a section for each workload; AssertionError when a subscriber got anything but its events."""
    versions = {name: SERVERS[PEERS[name].server].version() for name in effort.peers}
    there = [name for name in effort.peers if versions[name] is not None]
    for title, workload in WORKLOADS.items():
        found, slow = _in_turns(workload, there, effort)
        notes = [f"{name} did not finish in time: {title}, {why}" for name, why in slow.items()]
        yield Section(title, found, grid=True, notes=notes)
    notes = [*NOTES, f"file system {filesystem()}, bare fdatasync p50 {_bare_sync_ms():.2f} ms"]
    for name in effort.peers:
        peer, version = PEERS[name], versions[name]
        if version is None:
            package = SERVERS[peer.server].package
            notes.append(f"{name}: not installed (Debian's package {package})")
        else:
            notes.append(f"{name} {version}: acknowledged {peer.durability}; {peer.selection}")
    yield Section("the systems", [], grid=True, notes=notes)


def _in_turns(
    workload: Workload, there: Sequence[str], effort: PeersEffort
) -> tuple[list[Measurement], dict[str, str]]:
    """Run a workload on all systems that are there; returns the best of each, and who was too slow for what.

    Tidemark may not be.
    """
    best: dict[tuple[str, str], float] = {}
    slow: dict[str, str] = {}
    for _ in range(effort.rounds):
        for name in there:
            with BenchTestbed() as testbed:
                try:
                    found = workload(testbed, PEERS[name], effort)
                except TooSlowError as late:
                    if name == TIDEMARK:
                        raise
                    slow[name] = str(late)
                    continue
                except AssertionError as wrong:
                    raise AssertionError(f"{name}: {wrong}") from wrong
            for metric, value in found.items():
                better = max if metric.endswith(_MORE) else min
                best[metric, name] = better(value, best.get((metric, name), value))
            sleep(BETWEEN_SECONDS)
    measurements = [
        Measurement(name, metric, value, metric.rpartition(", ")[2]) for (metric, name), value in best.items()
    ]
    return measurements, slow


def _fan_out(testbed: BenchTestbed, peer: Peer, effort: PeersEffort) -> Found:
    server = _start(testbed, peer)
    publisher = _publisher(testbed, peer, server)
    workers = subscribing(testbed, effort.fan_out, _style(peer), quarter=True)
    all_of(workers, "come", url=server.url)
    window = {"workers": len(workers), "window_events": WINDOW_EVENTS, "share": effort.fan_out // KINDS}
    publisher.request("fan_out", batch_events=BATCH_EVENTS, under_way=UNDER_WAY_EVENTS, **window)
    if not wait_until(lambda: testbed.counters.delivered > 0):
        raise TooSlowError("nothing is delivered")
    flow = measure_deliveries(testbed.counters, [server], effort.warm_seconds, effort.seconds)
    all_of(workers, "check", events=publisher.answer())
    what = f"fan-out, {effort.fan_out} subscribers a quarter each"
    return {
        f"{what}, deliveries/s": flow.rate,
        "the same, broker CPU, s/million deliveries": flow.cpu_seconds[0] * 1e6 / max(flow.delivered, 1),
    }


def _publish(testbed: BenchTestbed, peer: Peer, effort: PeersEffort) -> Found:
    server = _start(testbed, peer)
    publisher = _publisher(testbed, peer, server)
    auditors = _away(testbed, peer, server, KINDS)
    cpu = server.cpu_seconds
    found = publisher.ask(
        "flood",
        batch_events=BATCH_EVENTS,
        under_way=UNDER_WAY_EVENTS,
        warm=effort.warm_seconds,
        seconds=effort.seconds,
    )
    used = server.cpu_seconds - cpu
    all_of(auditors, "come", url=server.url)
    all_of(auditors, "check", events=found["events"])
    return {
        "publish, pipelined, events/s": found["rate"],
        "the same, broker CPU, s/million events": used * 1e6 / max(found["events"], 1),
    }


def _one_by_one(testbed: BenchTestbed, peer: Peer, effort: PeersEffort) -> Found:
    server = _start(testbed, peer)
    publisher = _publisher(testbed, peer, server)
    auditors = _away(testbed, peer, server, KINDS)
    warm = effort.singles // 10
    publisher.ask("one_by_one", events=warm)
    taken = publisher.ask("one_by_one", events=effort.singles)
    all_of(auditors, "come", url=server.url)
    all_of(auditors, "check", events=warm + effort.singles)
    return {"publish, one at a time, p50, ms": median(taken) / 1e6}


def _return(testbed: BenchTestbed, peer: Peer, effort: PeersEffort) -> Found:
    server = _start(testbed, peer)
    publisher = _publisher(testbed, peer, server)
    workers = _away(testbed, peer, server, effort.returning)
    events = publisher.ask(
        "fixed", events=effort.missed, batch_events=BATCH_EVENTS, under_way=UNDER_WAY_EVENTS
    )
    sleep(SETTLE_SECONDS)
    SERVERS[peer.server].save(server)
    on_disk = server.disk_bytes
    began, cpu = monotonic(), server.cpu_seconds
    for worker in workers:
        worker.request("come", url=server.url, missed=events)
    everybody = effort.returning
    if not wait_until(lambda: testbed.counters.caught_up == everybody):
        raise TooSlowError(f"{testbed.counters.caught_up} of {everybody} have caught up in time")
    taken, used = monotonic() - began, server.cpu_seconds - cpu
    for worker in workers:
        worker.answer()
    all_of(workers, "check", events=events)
    delivered = testbed.counters.delivered
    what = f"{effort.returning} return, a quarter of {effort.missed:,} each"
    return {
        f"{what}, deliveries/s": delivered / taken,
        "the same, broker CPU, s/million returned": used * 1e6 / max(delivered, 1),
        f"disk, {effort.returning} away, bytes/event": on_disk / events,
    }


def _latency(testbed: BenchTestbed, peer: Peer, effort: PeersEffort) -> Found:
    server = _start(testbed, peer)
    publisher = _publisher(testbed, peer, server)
    stopwatch = testbed.worker("peer stopwatch", peer=peer.name, kinds=KINDS)
    stopwatch.ask("come", url=server.url)
    warm = effort.paced // 10
    publisher.ask("paced", rate=EVENTS_A_SECOND, events=warm)
    events = publisher.ask("paced", rate=EVENTS_A_SECOND, events=effort.paced)
    taken = stopwatch.ask("measured", events=events)[warm // KINDS :]
    of_hundred = quantiles(taken, n=100)
    return {
        f"latency at {EVENTS_A_SECOND}/s, p50, ms": of_hundred[49] / 1e6,
        f"latency at {EVENTS_A_SECOND}/s, p99, ms": of_hundred[98] / 1e6,
    }


WORKLOADS: dict[str, Workload] = {
    "live fan-out": _fan_out,
    "publishing, pipelined": _publish,
    "publishing, one at a time": _one_by_one,
    "returning together, and the disk": _return,
    "latency": _latency,
}


def _start(testbed: BenchTestbed, peer: Peer) -> Server:
    return SERVERS[peer.server].start(testbed, peer.options)


def _publisher(testbed: BenchTestbed, peer: Peer, server: Server) -> WorkerProcess:
    worker = testbed.worker("peer publisher", peer=peer.name, url=server.url, kinds=KINDS)
    worker.wait()
    return worker


def _away(testbed: BenchTestbed, peer: Peer, server: Server, subscribers: int) -> list[WorkerProcess]:
    """Start durable subscribers, a quarter each, that connect once and leave."""
    workers = subscribing(testbed, subscribers, _style(peer), quarter=True)
    all_of(workers, "come", url=server.url)
    all_of(workers, "leave")
    return workers


def _style(peer: Peer) -> str:
    return "lean" if peer.name == TIDEMARK else peer.name


def _bare_sync_ms() -> float:
    with BenchTestbed() as testbed:
        return median(bare_round(testbed.path / "bare", 200)) / 1e6
