"""Node: one broker with everything around it, from its data directory to its ports.

`Node.start` recovers what the disk has, then listens; `stop` ends it so that nothing has to be recovered or
sent again. A node that has failed has stopped acknowledging; all that is left is to end the process.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from http import HTTPStatus
from secrets import randbits
from time import time, time_ns

from tidemark.broker.broker import Broker, BrokerConfig
from tidemark.broker.host import HostPolicy
from tidemark.broker.pubend import PubendPolicy
from tidemark.message.registry import Registry
from tidemark.node.admin import Admin
from tidemark.node.archivewatch import ArchiveWatch
from tidemark.node.config import Config, RetentionSection
from tidemark.node.data import DataDirectory
from tidemark.node.http import HttpServer, Response
from tidemark.node.laxdisk import LaxDisk
from tidemark.node.links import Links
from tidemark.node.logs import Log
from tidemark.node.metrics import Metrics
from tidemark.node.runtime import Runtime
from tidemark.node.server import Server
from tidemark.node.store import Store
from tidemark.node.units import Address
from tidemark.storage.realdisk import RealDisk
from tidemark.storage.sqlitetables import SqliteTables
from tidemark.ticks import Thresholds

#: A disk that is at one thing for longer is not healthy.
DISK_BUSY_SECONDS_MAX = 10.0
#: How often alarms are looked for.
ALARM_SECONDS = 1.0
#: Subscribers may wait for the archive for so many looks before it is an alarm.
STUCK_LOOKS = 10
NO_PIPELINE = (
    "subscribers wait for history that only the archive has, and no pipeline is connected: start "
    "`tidemark pipeline archive`, or set retention.recall to no, which tells them of a gap"
)
TABLES_FILE = "tables.sqlite"
log = Log("node")


class Node:
    """A running broker. Use `start`."""

    def __init__(self, config: Config, directory: DataDirectory, store: Store, broker: Broker) -> None:
        self.config = config
        #: what went wrong, once something has
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.metrics = Metrics()
        self.runtime = Runtime(
            broker,
            store,
            disk_queue_bytes_max=config.limits.disk_queue,
            failed=self._fail,
            timed=self.metrics.timed,
        )
        self.started = time()
        self.state = "starting"
        self.address = config.broker.listen
        self.http_address: Address | None = None
        self._directory = directory
        self._store = store
        topology, name = config.topology, config.broker.name
        admin = Admin(self)
        self.server = Server(
            name,
            store.incarnation,
            topology.routes(name),
            topology.neighbours(name),
            config.limits,
            self.runtime,
            admin.answer,
        )
        self._links: Links | None = None
        self._http: HttpServer | None = None
        self._alarms_told: tuple[str, ...] = ()
        self._archive_alarms: tuple[str, ...] = ()
        self._stuck_looks = 0
        self._archive_watch = ArchiveWatch(config.retention.max_bytes)
        self._alarm_timer: asyncio.TimerHandle | None = None
        self.metrics.watch(self)

    @classmethod
    async def start(cls, config: Config) -> Node:
        """Recover and listen. Errors as of the data directory and the store, and OSError of a taken port."""
        with ExitStack() as undo:
            directory = DataDirectory(config.storage.data_dir)
            undo.callback(directory.close)
            store = open_store(config, directory)
            undo.callback(store.close)
            broker = await asyncio.to_thread(_recovered, config, store)
            node = cls(config, directory, store, broker)
            undo.pop_all()
        try:
            await node._open()
        except BaseException:
            await node._give_up()
            raise
        return node

    @property
    def alarms(self) -> tuple[str, ...]:
        """What somebody should look at."""
        return (*self._store.alarms, *self._archive_alarms)

    async def _open(self) -> None:
        config = self.config
        self.runtime.start()
        http_address = config.http_address()
        if http_address is not None:
            self._http = HttpServer({"/health": self._health, "/metrics": self.metrics.page})
            self.http_address = await self._http.listen(http_address)
        self.address = await self.server.listen(config.broker.listen)
        self._links = Links(self.server, config.topology.calls(config.broker.name))
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

    async def stop(self) -> None:
        """Let nobody in, finish what was received, say goodbye, put everything on disk."""
        self.state = "stopping"
        log.info("stopping", clients=len(self.runtime.clients))
        self.server.shut()
        if self._links is not None:
            await self._links.stop()
        for connection in list(self.server.connections):
            connection.pause()
        await self.runtime.settle()
        await self.server.say_goodbye()
        thresholds = self.config.thresholds
        await self.runtime.drain(max(thresholds.save, thresholds.pfs_sync))
        self._let_go()
        log.info("stopped")

    async def fail_stop(self) -> None:
        """After a failure: cut everybody off and write nothing more."""
        await self._give_up()

    async def _give_up(self) -> None:
        self.runtime.stop()
        if self._links is not None:
            await self._links.stop()
        self.server.stop()
        await self.runtime.disk.stop()
        self._let_go()

    def _look_at_alarms(self) -> None:
        """Say what is new among them, every so often."""
        recalls = self.runtime.broker.recalls
        is_stuck = recalls.waiting > 0 and not recalls.pipelines
        # A pipeline that starts again is away for a moment.
        self._stuck_looks = self._stuck_looks + 1 if is_stuck else 0
        waiting = [self._archive_watch.look(each) for each in self.runtime.broker.describe_pubends()]
        self._archive_alarms = (
            *((NO_PIPELINE,) if self._stuck_looks > STUCK_LOOKS else ()),
            *(text for text in waiting if text is not None),
        )
        told, self._alarms_told = self._alarms_told, self.alarms
        for text in self._alarms_told:
            if text not in told:
                log.error("alarm", what=text)
        loop = asyncio.get_running_loop()
        self._alarm_timer = loop.call_later(ALARM_SECONDS, self._look_at_alarms)

    def _let_go(self) -> None:
        if self._alarm_timer is not None:
            self._alarm_timer.cancel()
        if self._http is not None:
            self._http.close()
        self._store.close()
        self._directory.close()

    def _fail(self, error: BaseException) -> None:
        self.state = "failed"
        if not self.failed.done():
            self.failed.set_result(error)

    def _problems(self) -> list[str]:
        problems: list[str] = []
        if self.runtime.disk.busy_seconds > DISK_BUSY_SECONDS_MAX:
            problems.append("the disk does not answer")
        if self._store.is_waiting or self.runtime.backlog.is_log_full:
            problems.append("the disk is full")
        return problems

    def _health(self) -> Response:
        """200 if events are taken and acknowledged, 503 if not."""
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


def open_store(config: Config, directory: DataDirectory) -> Store:
    """The storage of a data directory."""
    kind = RealDisk if config.storage.durability == "sync" else LaxDisk
    tables = SqliteTables(directory.part("tables") / TABLES_FILE)
    try:
        return Store(
            kind(directory.part("log")),
            kind(directory.part("pfs")),
            tables,
            identity=randbits(64),
            segment_bytes=config.storage.segment,
        )
    except BaseException:
        tables.close()
        raise


def _recovered(config: Config, store: Store) -> Broker:
    routes = config.topology.routes(config.broker.name)
    hosted = [pubend for pubend, route in routes.items() if route.upstream is None]
    found = store.recover(hosted, time_ns() // 1_000)
    return Broker(broker_config(config, store.incarnation), Registry(), found)


def _recalls(retention: RetentionSection) -> bool:
    return retention.archive if retention.recall == "auto" else retention.recall == "yes"


def broker_config(config: Config, incarnation: int) -> BrokerConfig:
    """The settings as the broker's roles take them."""
    name, thresholds, retention = config.broker.name, config.thresholds, config.retention
    return BrokerConfig(
        name,
        incarnation,
        config.topology.routes(name),
        PubendPolicy(
            heartbeat=thresholds.heartbeat,
            lease_ahead=thresholds.lease,
            ack_expected=thresholds.ack_expected,
            max_retain=retention.max_retain,
            max_bytes=retention.max_bytes,
            archive=retention.archive,
            release_unarchived=retention.release_unarchived,
        ),
        HostPolicy(silence=thresholds.silence, save=thresholds.save, recall=_recalls(retention)),
        Thresholds(gct_us=thresholds.gap, nrt_us=thresholds.nack, nrt_us_max=thresholds.nack_max),
        config.limits.window,
        pfs_sync=thresholds.pfs_sync,
    )
