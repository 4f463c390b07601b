"""Metrics: the values that Prometheus asks for, read from the node when it asks.

Each value is counted where it arises (`Broker.counters`, the server, the leases) and only read here; the
durations of syncs alone are collected here. What belongs to single subscriptions is on a page of its own,
which is bounded and costs the broker's core a question: /metrics/subscriptions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from shutil import disk_usage
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from tidemark.broker.counters import COUNTED
from tidemark.node.disk.disk_thread import SYNCS
from tidemark.node.monitoring.client_traffic import ClientTraffic
from tidemark.node.monitoring.http import Response
from tidemark.node.monitoring.lag_question import LAG_SERIES_MAX
from tidemark.node.monitoring.link_traffic import LinkTraffic
from tidemark.node.monitoring.watcher import BrokerWatcher
from tidemark.wire.answers import SubscriptionStatus

if TYPE_CHECKING:
    from tidemark.node.node import Node

SYNC_BUCKETS_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)


class Metrics:
    """The metrics of one node."""

    def __init__(self, watcher: BrokerWatcher) -> None:
        """`watcher` is told by the broker's core what it does."""
        self.registry = CollectorRegistry()
        self.watcher = watcher
        self._syncs = Histogram(
            "tidemark_sync_seconds",
            "How long a sync took, by what was synced.",
            ["which"],
            buckets=SYNC_BUCKETS_SECONDS,
            registry=self.registry,
        )
        # All are present from the start, so that a rate includes the first syncs.
        self._of_sync = {which: self._syncs.labels(which) for which in SYNCS.values()}
        ProcessCollector(registry=self.registry)

    def watch(self, node: Node) -> None:
        """Report on `node` from now on."""
        self.registry.register(_NodeCollector(node))

    def timed(self, which: str, seconds: float) -> None:
        """A sync of `which` (log, pfs or tables) took so long."""
        self._of_sync[which].observe(seconds)

    def page(self) -> Response:
        """Returns the page /metrics."""
        return Response(generate_latest(self.registry), CONTENT_TYPE_LATEST)


def subscriptions_page(subscriptions: Sequence[SubscriptionStatus], *, is_all: bool) -> Response:
    """Returns the page /metrics/subscriptions, with these subscriptions; `is_all`: there are no others."""
    lag = CollectorRegistry(auto_describe=False)
    lag.register(_LagCollector(subscriptions, is_all))
    return Response(generate_latest(lag), CONTENT_TYPE_LATEST)


class _LagCollector(Collector):
    """What each durable subscription is owed, in all pubends together."""

    def __init__(self, subscriptions: Sequence[SubscriptionStatus], is_all: bool) -> None:
        self._subscriptions = subscriptions
        self._is_all = is_all

    def describe(self) -> list[Metric]:
        """Nothing beforehand."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields three series for each subscription."""
        label = ["subscription"]
        events = GaugeMetricFamily("tidemark_lag_events", "Events that are owed.", labels=label)
        size = GaugeMetricFamily("tidemark_lag_bytes", "Bytes of the events that are owed.", labels=label)
        age = GaugeMetricFamily("tidemark_lag_seconds", "Age of the oldest event that is owed.", labels=label)
        for each in self._subscriptions:
            progress = each.pubends.values()
            events.add_metric([each.name], sum(one.owed_events for one in progress))
            size.add_metric([each.name], sum(one.owed_bytes for one in progress))
            age.add_metric([each.name], max((one.lag_us or 0 for one in progress), default=0) / 1e6)
        yield from (events, size, age)
        yield GaugeMetricFamily(
            "tidemark_lag_incomplete",
            f"1 if some subscriptions have no series here: there are {LAG_SERIES_MAX} at most.",
            0 if self._is_all else 1,
        )


class _NodeCollector(Collector):
    def __init__(self, node: Node) -> None:
        self._node = node

    def describe(self) -> list[Metric]:
        """Nothing beforehand: registering must not read the node."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields every metric as of now."""
        node = self._node
        info = GaugeMetricFamily(
            "tidemark_broker_info", "1, with the broker's name and version.", labels=["broker", "version"]
        )
        info.add_metric([node.config.broker.name, version("tidemark")], 1)
        yield info
        yield from node.metrics.watcher.families()
        for name, value in node.runtime.broker.counters.items():
            yield CounterMetricFamily(f"tidemark_{name}", COUNTED.get(name, name), value)
        server = self._node.server
        given_up = 0 if server.handshakes is None else server.handshakes.given_up
        turned_away = server.turned_away + given_up
        yield CounterMetricFamily("tidemark_turned_away", "Connections over a limit.", turned_away)
        yield CounterMetricFamily(
            "tidemark_frames_malformed",
            "Frames that could not be read; each ended a connection.",
            server.malformed,
        )
        yield CounterMetricFamily(
            "tidemark_input_refused", "Connections closed because of limits.input.", server.incomplete.closed
        )
        yield CounterMetricFamily(
            "tidemark_questions_refused", "Questions over limits.questions.", server.questions_refused
        )
        yield CounterMetricFamily(
            "tidemark_turns_waited",
            "How often a connection that says much had to wait for others.",
            server.turns.waits,
        )
        yield GaugeMetricFamily(
            "tidemark_turn_longest_seconds",
            "The most processor time that what one connection said has taken without a break.",
            server.turns.longest,
        )
        yield CounterMetricFamily("tidemark_frames_dropped", "Frames for slow neighbours.", server.dropped)
        yield from _links(server.link_traffic)
        yield from _clients(server.client_traffic)
        leases = server.leases
        yield CounterMetricFamily("tidemark_dials", "Calls of clients that were away.", leases.dials)
        yield CounterMetricFamily("tidemark_dials_failed", "Those that led to nothing.", leases.dials_failed)
        yield CounterMetricFamily("tidemark_leases_expired", "Clients away for too long.", leases.expired)
        for name, (about, amount) in gauges(self._node).items():
            yield GaugeMetricFamily(f"tidemark_{name}", about, amount)
        held = GaugeMetricFamily("tidemark_held_bytes", "Memory, by what holds it.", labels=["what"])
        for what, size in held_bytes(self._node).items():
            held.add_metric([what], size)
        yield held
        yield from _pubends(self._node)
        yield from _archive(self._node)


def _links(traffic: LinkTraffic) -> Iterator[Metric]:
    """Yields what was sent over each link, by the kind of frame."""
    labels = ["peer", "kind"]
    frames = CounterMetricFamily("tidemark_link_frames", "Frames sent to a neighbour.", labels=labels)
    size = CounterMetricFamily("tidemark_link_bytes", "Bytes sent to a neighbour.", labels=labels)
    for peer, kinds in traffic.all():
        for kind, count in kinds.items():
            frames.add_metric([peer, kind], count.frames)
            size.add_metric([peer, kind], count.bytes)
    yield from (frames, size)


def _clients(traffic: ClientTraffic) -> Iterator[Metric]:
    """Yields what was sent to and received from all clients, by the kind of frame."""
    labels = ["direction", "kind"]
    frames = CounterMetricFamily("tidemark_client_frames", "Frames from and to clients.", labels=labels)
    size = CounterMetricFamily("tidemark_client_bytes", "Bytes from and to clients.", labels=labels)
    for direction, kind, count in traffic.all():
        frames.add_metric([direction, kind], count.frames)
        size.add_metric([direction, kind], count.bytes)
    yield from (frames, size)


def _pubends(node: Node) -> Iterator[Metric]:
    """Yields what the log of each pubend here holds."""
    size = GaugeMetricFamily(
        "tidemark_log_held_bytes", "Bytes of the events in the log of a pubend.", labels=["pubend"]
    )
    for each in node.runtime.broker.describe_pubends():
        size.add_metric([each.pubend], each.bytes)
    yield size


def _archive(node: Node) -> Iterator[Metric]:
    """Yields how the engine that writes the archive is doing, and how far it is behind this broker."""
    behind = [
        each.last_event - each.archived
        for each in node.runtime.broker.describe_pubends()
        if each.archived is not None and each.last_event is not None
    ]
    if behind:
        yield GaugeMetricFamily(
            "tidemark_archive_lag_seconds",
            "How old the oldest event is that is not archived, measured from the last event.",
            max(0.0, max(behind) / 1e6),
        )
    engine = node.engine_reports.current
    if engine is None:
        return
    info = GaugeMetricFamily(
        "tidemark_archive_engine",
        "1 for the engine that writes the archive, with where it runs and what went wrong last.",
        labels=["engine", "master", "ui", "error"],
    )
    info.add_metric([engine.engine, engine.master, engine.ui, engine.error], 1)
    yield info
    yield GaugeMetricFamily("tidemark_archive_batch", "The last batch that was archived.", engine.batch)
    yield GaugeMetricFamily(
        "tidemark_archive_events_per_second", "Of the last batches, while at work.", engine.events_per_second
    )
    yield CounterMetricFamily("tidemark_archive_events", "Events in the archive.", engine.events)
    if engine.files is not None and engine.file_bytes is not None:
        yield GaugeMetricFamily("tidemark_archive_files", "Files of the archive's tables.", engine.files)
        yield GaugeMetricFamily("tidemark_archive_file_bytes", "Bytes of these files.", engine.file_bytes)


def held_bytes(node: Node) -> Mapping[str, int]:
    """Returns the memory of everything that is bounded by a setting or a limit: what -> bytes now."""
    server, broker = node.server, node.runtime.broker
    return {
        "input": server.incomplete.bytes,
        "disk": node.runtime.backlog.bytes,
        "windows": sum(size for _, size in broker.window_bytes()),
        "publishers": broker.publishers_bytes,
        "output": sum(each.queued_bytes for each in server.congested),
        "mail": sum(each.mail_bytes for each in server.leases.waiting),
    }


def gauges(node: Node) -> Mapping[str, tuple[str, float]]:
    """Returns the values that go up and down: name -> (what it means, value now)."""
    server, runtime = node.server, node.runtime
    parked = server.leases.parked
    return {
        "clients": ("Clients connected.", len(runtime.clients) - parked),
        "parked": ("Clients that are away and will be called.", parked),
        "connections": ("All connections, also those not introduced.", len(server.connections)),
        "links_up": ("Neighbours linked.", len(runtime.peers)),
        "links_wanted": ("Neighbours in the topology.", len(server.neighbours)),
        "queued_bytes": (
            "Output that others have not taken.",
            sum(each.queued_bytes for each in server.congested),
        ),
        "disk_backlog_bytes": ("Memory that waits for the disk.", runtime.backlog.bytes),
        "disk_busy_seconds": ("For how long the disk has been at one thing.", runtime.disk.busy_seconds),
        "disk_free_bytes": ("Room on the disk of the data.", disk_usage(node.config.storage.data_dir).free),
        "recalls_waiting": (
            "Recalls of subscribers that no pipeline answers yet.",
            runtime.broker.recalls.waiting,
        ),
        "pipelines": ("Pipelines that answer recalls.", runtime.broker.recalls.pipelines),
        "alarms": ("Things somebody should look at.", len(node.alarms)),
        "incarnation": ("How often this broker has started.", server.incarnation),
    }
