"""Node: one broker with everything around it, from its data directory to its ports.

`Node.start` recovers what the disk has, then listens; `stop` ends the broker so that nothing has to be
recovered or sent again. A node that has failed has stopped acknowledging; the process can only end then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from errno import EADDRINUSE
from http import HTTPStatus
from pathlib import Path
from secrets import randbits
from time import time
from urllib.parse import quote

from tidemark.access.document import AccessDocument
from tidemark.broker.broker import Broker
from tidemark.broker.config import BrokerConfig, ClientLimits
from tidemark.broker.effects import AccessChanged, HostRemoved, RecoveredPubend, RoutesChanged
from tidemark.broker.hosting.host import HostPolicy
from tidemark.broker.observer import Observer
from tidemark.broker.publishing.pubend import PubendPolicy
from tidemark.broker.topics import TopicLimits
from tidemark.errors import ConfigError, DamagedError
from tidemark.message.registry import Registry
from tidemark.node.admin import ProcessAdmin
from tidemark.node.clock import wall_us
from tidemark.node.config.loading import moved
from tidemark.node.config.pubends import has_archive, settings_of
from tidemark.node.config.settings import Config
from tidemark.node.config.units import HostPort, parse_duration
from tidemark.node.disk.data_directory import OVERLAY_FILE, DataDirectory
from tidemark.node.disk.snapshots import Snapshots, remove_snapshot
from tidemark.node.disk.unsynced_disk import UnsyncedDisk
from tidemark.node.links import LinkCaller
from tidemark.node.local_link import LocalBrokers
from tidemark.node.logs import Log
from tidemark.node.monitoring.http import HttpServer, Response, Say
from tidemark.node.monitoring.lag_question import LagQuestion
from tidemark.node.monitoring.metrics import Metrics, subscriptions_page
from tidemark.node.monitoring.watcher import watcher_of
from tidemark.node.process.archiving import ArchiveWatch, EngineReports
from tidemark.node.runtime import Runtime
from tidemark.node.security.access_membership import AccessMembership
from tidemark.node.security.security import Security
from tidemark.node.server import Server, drain_notice, hosted
from tidemark.node.topology.membership import Membership
from tidemark.node.topology.topology import OF_FILE, Topology
from tidemark.node.workers.handed_sockets import HandedSockets
from tidemark.node.workers.handover import WorkerSeat
from tidemark.node.workers.redirects import Redirects
from tidemark.node.workers.subscription_workers import SubscriptionWorkers
from tidemark.persistence.store import Store, StoreDisks, StoreSettings
from tidemark.storage.disk.real_disk import RealDisk
from tidemark.storage.tables.sqlite_tables import SqliteTables
from tidemark.ticks import Thresholds

#: A disk operation that takes longer makes the broker unhealthy.
DISK_BUSY_SECONDS_MAX = 10.0
#: How often the node looks for alarms.
ALARM_SECONDS = 1.0
#: Subscribers wait for the archive during so many looks before that is an alarm.
STUCK_LOOKS = 10
RULES_MISFIT = (
    "{} times a rule of access fits no event of a topic, which is closed by it: "
    "`tidemark access plan` says which"
)
NO_PIPELINE = (
    "subscribers wait for history that only the archive has, and no pipeline is connected: start "
    "`tidemark pipeline archive`, or set retention.recall to no, which tells them of a gap"
)
TABLES_FILE = "tables.sqlite"
#: What `retention.min_retain` is where there is no archive, in microseconds.
MIN_RETAIN_US = parse_duration("1h")
log = Log("node")


class Node:
    """A running broker, made by `start`.

    The node owns all that is below it: the data directory and the store, the runtime with the broker's core
    and the disk threads, the membership, the server with its connections, and the HTTP server. Metrics and
    admin read the node; they change nothing but by `Membership.propose`.
    """

    def __init__(
        self,
        config: Config,
        directory: DataDirectory,
        store: Store,
        broker: Broker,
        local_brokers: LocalBrokers,
        security: Security,
        metrics: Metrics,
    ) -> None:
        """Use `start`. The node closes `directory` and `store` when it ends."""
        self.config = config
        self.security = security
        loop = asyncio.get_running_loop()
        #: done when the broker or its disk has failed; the result is the error
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        #: set when a topology is adopted that does not have this broker
        self.removed = asyncio.Event()
        self.metrics = metrics
        self.runtime = Runtime(
            broker,
            store,
            self,
            disk_queue_bytes_max=config.limits.disk_queue,
            in_flight_bytes_max=config.limits.in_flight,
            stays_awake=config.broker.latency == "low",
        )
        #: time of day of the start, in seconds
        self.started = time()
        #: starting, running, stopping or failed
        self.state = "starting"
        #: where clients connect and where health and metrics are served; with their ports once it listens
        self.address = config.broker.listen
        self.http_address: HostPort | None = None
        self._directory = directory
        self._store = store
        self.snapshots = Snapshots(directory.path, store, self.runtime.disk)
        self.membership = Membership(config.topology, self._save_topology, self._adopt, broker.counters)
        #: the access document, and how newer ones come; None while the broker is open
        self.access: AccessMembership | None = None
        if security.accounts is not None:
            self.access = AccessMembership(
                security.accounts.document,
                self._save_access,
                self._adopt_access,
                broker.access.known_topics,
                has_role_tokens=bool(config.security.bearer_roles),
                counters=broker.counters,
            )
        admin = ProcessAdmin(self)
        self.server = Server(
            config, store.incarnation, self.membership, self.runtime, admin, security, self.access
        )
        #: the brokers of the topology that the broker's core has been given
        self._brokers = set(config.topology.brokers)
        #: digest of the topology that this broker goes by, for the audit log
        self._topology_digest = config.topology.digest
        #: shared by all nodes of the process; this node enters and leaves its own server
        self._local_brokers = local_brokers
        self._links = LinkCaller(self.server, config.links, local_brokers)
        self._http: HttpServer | None = None
        #: the sockets that come from the acceptor, if this broker is one of several workers
        self._handed: HandedSockets | None = None
        #: alarms that were logged when they appeared, those about the archive, and what the latter come from
        self._alarms_told: tuple[str, ...] = ()
        self._archive_alarms: tuple[str, ...] = ()
        #: the alarm about rules of access that fit no event of a topic
        self._rule_alarms: tuple[str, ...] = ()
        self._stuck_looks = 0
        self._archive_watch = ArchiveWatch(config.retention.max_bytes)
        #: of the process that writes the archive
        self.engine_reports = EngineReports()
        self._alarm_timer: asyncio.TimerHandle | None = None
        self.metrics.watch(self)
        self.metrics.watcher.upstream_of = self._upstream_of
        self.metrics.watcher.note_answer = security.audit.answered

    @classmethod
    async def start(
        cls, config: Config, local_brokers: LocalBrokers | None = None, seat: WorkerSeat | None = None
    ) -> Node:
        """Recover from the disk, then listen. Returns the running node.

        `local_brokers` has the other brokers of this process; `seat` is that of a worker. Raises what
        `DataDirectory` and `Store` raise, ConfigError if the overlay has gone on without this broker, and
        OSError if a port is taken.
        """
        with ExitStack() as undo:
            directory = DataDirectory(config.storage.data_dir)
            undo.callback(directory.close)
            remove_snapshot(directory.path)
            store = open_store(config, directory)
            undo.callback(store.close)
            config = _latest(config, directory, store)
            security = Security.load(config, directory.access())
            document = security.accounts.document if security.accounts is not None else None
            metrics = Metrics(watcher_of(config))
            broker, struck, durable = await asyncio.to_thread(
                _recovered, config, store, document, metrics.watcher
            )
            node = cls(config, directory, store, broker, local_brokers or LocalBrokers(), security, metrics)
            undo.pop_all()
        if struck:
            node.runtime.give([HostRemoved(host) for host in struck])
        try:
            await node._open()
            if seat is not None:
                node._sit(seat, durable)
        except BaseException:
            await node._give_up()
            raise
        return node

    @property
    def alarms(self) -> tuple[str, ...]:
        """What an administrator should look at: one sentence each."""
        return (*self._store.alarms, *self._archive_alarms, *self._rule_alarms)

    async def _open(self) -> None:
        config = self.config
        self.runtime.start()
        await self.runtime.disk.reached()
        await self.runtime.disk.call(self._directory.has_started)
        http_address = config.http_address()
        if http_address is not None:
            self._http = HttpServer(
                {
                    "/health": lambda say: say(self._health()),
                    "/metrics": lambda say: say(self.metrics.page()),
                    "/metrics/subscriptions": self._subscription_metrics,
                },
                self.runtime.turns,
                dict.fromkeys(("/metrics", "/metrics/subscriptions"), self.security.may_read_metrics),
            )
            listening = self._http.listen(http_address, self.security.transport, config.limits)
            self.http_address = await _bound(listening, http_address, "http.listen")
        listen = config.broker.listen
        self.address = await _bound(self.server.listen(listen), listen, "broker.listen")
        self.membership.listens(config.broker.name, self.address)
        self._local_brokers.enter(self.server)
        self._links.change(config.topology.calls(config.broker.name))
        self.state = "running"
        self._look_at_alarms()
        log.info(
            "ready",
            broker=config.broker.name,
            listen=str(self.address),
            http=str(self.http_address or "off"),
            data=config.storage.data_dir,
            incarnation=self._store.incarnation,
        )

    def _sit(self, seat: WorkerSeat, durable: Iterable[tuple[str, str]]) -> None:
        """Take connections from the acceptor; the subscriptions `durable` are here."""
        server = self.server
        self._handed = HandedSockets(seat.channel, server)
        places = SubscriptionWorkers(seat.places, self.config.broker.name)
        places.enter(durable)
        server.redirects = Redirects(server, self.address.port, places, self._handed)
        self._handed.start()

    async def stop(self) -> None:
        """Stop in order, so that the next start has nothing to recover.

        Accept nobody, acknowledge what was received, close the connections, and put everything on disk.
        """
        self.state = "stopping"
        log.info("stopping", clients=len(self.runtime.clients))
        self.server.shut()
        await self._part()
        for connection in list(self.server.connections):
            connection.pause()
        await self.runtime.settle()
        await self.server.say_goodbye()
        thresholds = self.config.thresholds
        await self.runtime.drain(max(thresholds.save, thresholds.pfs_sync))
        await self.metrics.watcher.close()
        self._let_go()
        log.info("stopped")

    async def fail_stop(self) -> None:
        """End after a failure: abort all connections and write nothing more."""
        await self._give_up()

    async def _give_up(self) -> None:
        self.runtime.stop()
        await self._part()
        self.server.stop()
        await self.runtime.disk.stop()
        self._let_go()

    async def _part(self) -> None:
        """Call no neighbour, be called by no broker of this process, and adopt no topology any more."""
        if self._handed is not None:
            self._handed.stop()
        self._local_brokers.leave(self.server)
        self.membership.stop()
        if self.access is not None:
            self.access.stop()
        await self._links.stop()

    # The overlay.

    def _upstream_of(self, pubend: str) -> str | None:
        stream = self.runtime.broker.stream(pubend)
        return stream.upstream if stream is not None else None

    @property
    def topology(self) -> Topology:
        """The topology that this broker goes by now."""
        return self.membership.topology

    @property
    def is_draining(self) -> bool:
        """Whether the topology drains this broker."""
        placement = self.topology.brokers.get(self.config.broker.name)
        return placement is not None and placement.is_draining

    async def _save_topology(self, topology: Topology) -> dict[str, RecoveredPubend]:
        """Put `topology` on disk. Returns what the logs know of the pubends that are new at this broker."""
        name = self.config.broker.name
        new = set(hosted(topology, name)) - set(hosted(self.topology, name))

        def on_disk() -> dict[str, RecoveredPubend]:
            self._directory.save_topology(topology)
            self._store.topology_saved(topology.version)
            return self._store.open_pubends(sorted(new), wall_us())

        return await self.runtime.disk.call(on_disk)

    def _adopt(self, topology: Topology, states: Mapping[str, RecoveredPubend]) -> None:
        """Go by `topology`, which is on disk. Links that it ends are told of it before they are closed."""
        name = self.config.broker.name
        before, self._topology_digest = self._topology_digest, topology.digest
        self.security.audit.write(
            "topology changed",
            version=topology.version,
            digest=topology.digest,
            before=before,
            brokers=len(topology.brokers),
        )
        self.server.spread(self.membership.whole())
        if name not in topology.brokers:
            log.warning("the overlay goes on without this broker", version=topology.version)
            self.removed.set()
            return
        removed = sorted(self._brokers - set(topology.brokers))
        self._brokers = set(topology.brokers)
        self.runtime.give(
            [
                RoutesChanged(topology.layout(), states, drain_notice(topology, name)),
                *map(HostRemoved, removed),
            ]
        )
        self.server.change(topology)
        self._links.change(topology.calls(name))

    # Access.

    async def _save_access(self, document: AccessDocument) -> None:
        await self.runtime.disk.call(lambda: self._directory.save_access(document))

    def _adopt_access(self, before: AccessDocument, document: AccessDocument) -> None:
        """Go by `document`, which is on disk; clients of whom it says something else come again."""
        assert self.access is not None
        assert self.security.accounts is not None
        self.security.accounts.document = document
        self.security.audit.write(
            "access changed",
            version=document.version,
            digest=document.digest,
            before=before.digest,
            users=len(document.users),
            roles=len(document.roles),
        )
        self.runtime.give((AccessChanged(document),))
        self.server.spread(self.access.whole())

    def reload(self) -> None:
        """Read certificates and the keys of bearer tokens again, as SIGHUP asks."""
        self.security.look(is_asked=True)

    def _look_at_alarms(self) -> None:
        """Log the alarms that are new, and look again in ALARM_SECONDS."""
        recalls = self.runtime.broker.recalls
        is_stuck = recalls.waiting > 0 and not recalls.pipelines
        # A pipeline that restarts is away for a moment, which is no alarm.
        self._stuck_looks = self._stuck_looks + 1 if is_stuck else 0
        waiting = [self._archive_watch.look(each) for each in self.runtime.broker.describe_pubends()]
        self._archive_alarms = (
            *((NO_PIPELINE,) if self._stuck_looks > STUCK_LOOKS else ()),
            *(text for text in waiting if text is not None),
        )
        # The names of roles and topics are not for everybody who may see /health.
        misfits = self.runtime.broker.access.misfits()
        self._rule_alarms = (RULES_MISFIT.format(misfits),) if misfits else ()
        told, self._alarms_told = self._alarms_told, self.alarms
        for text in self._alarms_told:
            if text not in told:
                log.error("alarm", what=text)
        for text in told:
            if text not in self._alarms_told:
                log.info("an alarm is over", what=text)
        loop = asyncio.get_running_loop()
        self._alarm_timer = loop.call_later(ALARM_SECONDS, self._look_at_alarms)

    def _let_go(self) -> None:
        if self._alarm_timer is not None:
            self._alarm_timer.cancel()
        if self._http is not None:
            self._http.close()
        self.snapshots.stop()
        if self.server.redirects is not None:
            self.server.redirects.close()
        self._store.close()
        self._directory.close()
        self.security.audit.close()

    # As the listener of the runtime.

    def runtime_failed(self, error: BaseException) -> None:
        """The broker or its disk has failed: whoever waits for `failed` ends the process."""
        self.state = "failed"
        if not self.failed.done():
            self.failed.set_result(error)

    def publishing_waits(self, client: int) -> None:
        """A client that has published more than its quota allows waits."""
        rights = self.runtime.broker.access.rights(client)
        if rights is not None:
            self.security.audit.waits(rights.principal.name, rights.quota)

    def sync_took(self, which: str, seconds: float) -> None:
        """A sync was measured."""
        self.metrics.timed(which, seconds)

    # Health.

    def _problems(self) -> list[str]:
        problems: list[str] = []
        if self.runtime.disk.busy_seconds > DISK_BUSY_SECONDS_MAX:
            problems.append("the disk does not answer")
        if self._store.is_full or self.runtime.backlog.is_log_full:
            problems.append("the disk is full")
        return problems

    def _health(self) -> Response:
        """Returns the page /health: 200 while events are accepted and acknowledged, else 503."""
        problems = self._problems()
        healthy = self.state == "running" and not problems
        body = {
            "status": "ok" if healthy else "failing" if problems else self.state,
            "broker": self.config.broker.name,
            "incarnation": self._store.incarnation,
            "problems": problems,
            "alarms": list(self.alarms),
            "links": {peer: peer in self.runtime.peers for peer in self.server.neighbours},
        }
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(json.dumps(body).encode() + b"\n", "application/json", status)

    def _subscription_metrics(self, say: Say) -> None:
        """Say what durable subscriptions are owed when that is known, if the page may say it."""
        if not self.security.shows_subscriptions:
            say(subscriptions_page([], is_all=False))
            return
        LagQuestion(self.runtime, lambda found, is_all: say(subscriptions_page(found, is_all=is_all)))


def open_store(config: Config, directory: DataDirectory) -> Store:
    """Open the storage in a data directory. Raises StorageError; nothing stays open then."""
    kind = RealDisk if config.storage.durability == "sync" else UnsyncedDisk
    tables = SqliteTables(directory.part("tables") / TABLES_FILE)
    chosen, name = config.storage.witness, quote(config.broker.name, safe="")
    try:
        return Store(
            StoreDisks(
                log=kind(directory.part("log")),
                pfs=kind(directory.part("pfs")),
                tables=tables,
                witness=kind(directory.part("witness")),
                second_witness=kind(Path(chosen) / f"of-{name}") if chosen else None,
                cache=UnsyncedDisk(directory.part("cache")),
            ),
            StoreSettings(
                segment_bytes=config.storage.segment,
                os_pubends=[
                    pubend for pubend in config.pubends if settings_of(config, pubend).durability == "os"
                ],
                pfs_group_bits=config.storage.pfs_group_bits,
                is_cached=config.cache.bytes > 0,
            ),
            identity=randbits(64),
            accept_damage=config.storage.accept_damage == "tables",
            restoration=directory.restoration(),
        )
    except BaseException:
        tables.close()
        raise


def _latest(config: Config, directory: DataDirectory, store: Store) -> Config:
    """Returns `config` with the newest topology that this broker knows, on disk unless it is the file's.

    Raises ConfigError if that topology does not have this broker, and DamagedError if a newer one was saved
    once and is not there any more.
    """
    saved, name = directory.topology(), config.broker.name
    found = max(config.topology.version, saved.version if saved is not None else OF_FILE)
    is_accepted = config.storage.accept_damage == "overlay" or directory.restoration() is not None
    if found < store.known_topology and not is_accepted:
        raise DamagedError(
            f"has version {found} of the topology, and other files know of {store.known_topology}: put the "
            "newest copy back, or start once with --set storage.accept_damage=overlay: the neighbours tell "
            "what is newer",
            path=str(directory.path / OVERLAY_FILE),
            offset=0,
        )
    if saved is None or config.topology.is_newer_than(saved):
        if config.topology.version > OF_FILE:
            directory.save_topology(config.topology)
            store.topology_saved(config.topology.version)
        return config
    if name not in saved.brokers:
        raise ConfigError(
            f"the overlay goes on without {name!r} since version {saved.version}: to have it there again, "
            "start it with --join and the address of another broker",
            key="broker.name",
        )
    return moved(config, saved)


def _recovered(
    config: Config, store: Store, access: AccessDocument | None, observer: Observer
) -> tuple[Broker, list[str], list[tuple[str, str]]]:
    """Returns the broker, the hosts in its tables that are no brokers of the topology any more, and the names
    of its durable subscriptions with their owners.
    """
    found = store.recover(hosted(config.topology, config.broker.name), wall_us())
    known = {host for hosts in found.hosts.values() for host in hosts}
    settings = replace(broker_config(config, store.incarnation), access=access, observer=observer)
    broker = Broker(settings, Registry(), found)
    durable = [(each.name, each.owner) for each in found.subscriptions]
    return broker, sorted(known - set(config.topology.brokers)), durable


def _recalls(config: Config) -> bool:
    recall = config.retention.recall
    return has_archive(config) if recall == "auto" else recall == "yes"


def _policy(config: Config, pubend: str) -> PubendPolicy:
    """Returns the policy of one pubend."""
    thresholds, own = config.thresholds, settings_of(config, pubend)
    without_archive = 0 if own.archive else int(MIN_RETAIN_US)
    return PubendPolicy(
        heartbeat=thresholds.heartbeat,
        heartbeat_idle=thresholds.heartbeat_idle,
        lease_ahead=thresholds.lease,
        ack_expected=thresholds.ack_expected,
        max_retain=own.max_retain,
        max_bytes=own.max_bytes,
        min_retain=without_archive if own.min_retain is None else own.min_retain,
        min_retain_bytes=config.retention.min_retain_bytes,
        archive=own.archive,
        release_unarchived=config.retention.release_unarchived,
    )


def broker_config(config: Config, incarnation: int) -> BrokerConfig:
    """Returns the settings in the form that the broker's core takes."""
    name, thresholds = config.broker.name, config.thresholds
    return BrokerConfig(
        name,
        incarnation,
        config.topology.layout(),
        _policy(config, ""),
        HostPolicy(silence=thresholds.silence, save=thresholds.save, recall=_recalls(config)),
        Thresholds(gct_us=thresholds.gap, nrt_us=thresholds.nack, nrt_us_max=thresholds.nack_max),
        config.limits.window,
        TopicLimits(config.limits.topic_schemas, config.limits.all_schemas),
        ClientLimits(
            config.limits.subscriptions,
            config.limits.scans,
            config.limits.topics,
            config.limits.address_times,
            config.limits.durable_subscriptions,
            config.limits.durable_selectors,
        ),
        pfs_sync=thresholds.pfs_sync,
        link_version=config.links.version,
        silence_patience=thresholds.company,
        drain_notice=drain_notice(config.topology, name),
        cache_bytes_max=config.cache.bytes,
        pubend_policies={pubend: _policy(config, pubend) for pubend in config.pubends},
    )


async def _bound(listening: Awaitable[HostPort], address: HostPort, setting: str) -> HostPort:
    """Return the address that `listening` has bound; ConfigError, with the setting, if it is in use."""
    try:
        return await listening
    except OSError as error:
        if error.errno != EADDRINUSE:
            raise
        reason = f"{address} is in use: stop the process that listens there, or choose another port"
        raise ConfigError(reason, key=setting) from error
