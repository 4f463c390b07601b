"""Store: carries out the disk effects of one broker, on the logs, the PFS and the tables of `storage`.

The same class serves the simulator, on disks in memory, and the broker process, on its disk threads: it has
no thread, no clock and no waiting of its own. Effects come in order; those for the event logs may come from
another thread than the others. An effect is done when `carry_out` returns, and the stimulus that it returns
is for the broker. The store uses three directories:
- the volume of the event logs, whose syncs publishers wait for;
- the volume of the PFS: a sync of one volume must not wait for the bytes of the other, and a full disk means
  different things to them: an event log drops a group as a whole, the PFS may drop nothing;
- the tables.
A full disk is no failure: the log answers LogFull, the others wait (`is_waiting`, `retry`). DiskFailedError
is raised to the caller, and then the broker can only stop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from tidemark.broker.config import Recovered
from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendMove,
    AppendPfs,
    ChopCache,
    ChopPfs,
    CommitTables,
    CountPfs,
    DropSubscription,
    Effect,
    ExpireLog,
    FetchLog,
    LoseLog,
    ReadCache,
    ReadLog,
    ReadPfs,
    RecoveredPubend,
    ResumeLog,
    SaveHosts,
    SaveReleased,
    SaveSubscription,
    SaveTopic,
    Stimulus,
    SyncLog,
    SyncPfs,
    WriteCache,
)
from tidemark.broker.hosting.subscription import SavedSubscription
from tidemark.errors import StorageError
from tidemark.persistence.alarm import Alarms
from tidemark.persistence.cache_store import CacheStore
from tidemark.persistence.event_logs import EventLogs, Report
from tidemark.persistence.pfs_store import PfsStore
from tidemark.persistence.restoration import Restoration
from tidemark.persistence.table_store import TableStore
from tidemark.persistence.vouching import Vouching
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.segments.durable_end import DurableEnd
from tidemark.storage.log.segments.segment import SEGMENT_BYTES
from tidemark.storage.log.volume import READ_BYTES, LogVolume
from tidemark.storage.tables.tables import RESTORED, Tables
from tidemark.ticks import Tick

#: How many reports of damage are alarms at a time; the newest are.
ALARMS_MAX = 100

FULL = "the disk is full: the space that is kept for starts is in use; make room, or let subscribers drain it"


@dataclass(frozen=True, slots=True)
class StoreDisks:
    """The directories in which a store keeps what it has, and its tables."""

    log: Disk
    pfs: Disk
    #: the store closes them when it is closed
    tables: Tables
    #: what the stores know of each other
    witness: Disk | None = None
    #: the same in another place, which is not lost or put back together with the other directories
    second_witness: Disk | None = None
    #: emptied at every start
    cache: Disk | None = None


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What an administrator decides of a store; every start may have other settings."""

    segment_bytes: int = SEGMENT_BYTES
    #: a ReadLog is answered with about this much at the most: a piece for subscribers that return together
    read_bytes: int = 2 * READ_BYTES
    #: pubends whose events are durable once the operating system has them
    os_pubends: Collection[str] = ()
    #: more than 0 makes the PFS imprecise: see `PersistentFiltering`
    pfs_group_bits: int = 0
    #: whether a new cache begins in `StoreDisks.cache`
    is_cached: bool = False


class Store:
    """The disk of one broker, from one start to the next."""

    def __init__(
        self,
        disks: StoreDisks,
        settings: StoreSettings | None = None,
        *,
        identity: int,
        accept_damage: bool = False,
        restoration: Restoration | None = None,
    ) -> None:
        """Open the volumes in the directories of the log and the PFS, or create them.

        `identity` is a random number of 64 bits, for volumes that have to be created. With `accept_damage`
        tables that have lost rows are used; otherwise they raise DamagedError, and nothing is written. With
        `restoration` the directories were put back from a backup, and this is the first start since then.
        Raises what `LogVolume.open` raises; the tables stay open then.
        """
        settings = settings if settings is not None else StoreSettings()
        tables = disks.tables
        #: how often the broker has started, counting this time; 0 before `recover`
        self.incarnation = 0
        self._alarms = Alarms()
        self._vouching = Vouching(tables, disks.witness, restoration, disks.second_witness)
        self._restoration = restoration
        with ExitStack() as undo:
            # Another identity: a segment that was put into the wrong directory by mistake is recognised.
            pfs_volume = LogVolume.open(
                disks.pfs,
                identity=identity ^ 1,
                segment_bytes=settings.segment_bytes,
                synced=self._vouching.known.pfs,
            )
            undo.callback(pfs_volume.abandon)
            self._vouching.opened_pfs(pfs_volume)
            log_volume = LogVolume.open(
                disks.log,
                identity=identity,
                segment_bytes=settings.segment_bytes,
                synced=self._vouching.known.log,
                is_partial=restoration is not None or tables.counter(RESTORED) > 0,
            )
            undo.callback(log_volume.abandon)
            self._vouching.opened_log(log_volume)
            self._vouching.check_tables(accept=accept_damage or restoration is not None)
            undo.pop_all()
        self._volumes = (log_volume, pfs_volume)
        self._raw_tables = tables
        self._logs = EventLogs(
            log_volume, self._vouching, settings.read_bytes, self._alarms, settings.os_pubends
        )
        self._pfs = PfsStore(pfs_volume, self._vouching, self._alarms, group_bits=settings.pfs_group_bits)
        self._cache = CacheStore(
            disks.cache, identity ^ 2, settings.segment_bytes, self._alarms, is_on=settings.is_cached
        )
        self._tables = TableStore(tables, self._vouching, self._alarms)
        for text in tables.bounded:
            self._alarms.stands(text, text)

    def recover(self, pubends: Iterable[str], now: Tick) -> Recovered:
        """Returns what the disk knows, for a broker that starts. Call it once, first.

        `pubends` are those hosted here, `now` is the time of day in microseconds. Raises StorageError.
        """
        assert self.incarnation == 0
        self._tables.now = now
        self._vouching.accept_loss(now)
        self.incarnation = self._tables.next_incarnation()
        delivered, subscriptions = self._pfs.delivered(), self._tables.subscriptions()
        logs = {
            name: self._logs.recover(name, self._floor(name, now, delivered, subscriptions))
            for name in pubends
        }
        if self._restoration is not None:
            # What the lost broker may have used is not used again, whatever happens from now on.
            self._volumes[0].sync()
        return Recovered(
            pubends=logs,
            subscriptions=subscriptions,
            next_subscriber=self._tables.next_subscriber(),
            delivered=delivered,
            topics=self._tables.topics(),
            # Hosts that came after rows were lost may be missing: every broker may be one then.
            hosts={} if self._has_lost_rows else self._tables.hosts(),
            doubtful_above=self._tables.doubtful_above(),
        )

    @property
    def _has_lost_rows(self) -> bool:
        # The first start after a restoration may have been ended by a crash, and this be the second.
        return self._vouching.has_lost_rows or self._restoration is not None

    def _floor(
        self,
        pubend: str,
        now: Tick,
        delivered: Mapping[str, Tick],
        subscriptions: Iterable[SavedSubscription],
    ) -> Tick:
        """Returns the time up to which the log of a pubend may have lost ticks, if it has lost any."""
        told: list[Tick] = []
        if self._restoration is not None:
            released = [each.released[pubend] for each in subscriptions if pubend in each.released]
            told = [self._restoration.taken, delivered.get(pubend, now), *released]
        return max([now, *told]) + self._raw_tables.counter(RESTORED)

    def open_pubends(self, pubends: Iterable[str], now: Tick) -> dict[str, RecoveredPubend]:
        """Open the logs of pubends that are hosted here from now on. Returns what the logs know of each."""
        now += self._raw_tables.counter(RESTORED)
        return {name: self._logs.recover(name, now) for name in pubends}

    # Backups.

    def cut_log(self) -> tuple[dict[str, int | None], DurableEnd]:
        """Returns what `LogVolume.cut` says of the event logs, and up to where. For their own thread."""
        return self._volumes[0].cut(), self._volumes[0].place

    @property
    def pfs_place(self) -> DurableEnd:
        """Up to where the PFS is on the platter. For the tables' thread."""
        return self._volumes[1].place

    def cut_pfs_and_tables(self, tables: str) -> tuple[dict[str, int | None], int]:
        """Copy what is committed of the tables to a file at the path `tables`. For the tables' thread.

        Returns what `LogVolume.cut` says of the PFS, and how many commits the copy has. Raises StorageError.
        """
        self._raw_tables.copy_to(tables)
        return self._volumes[1].cut(), self._raw_tables.generation

    def carry_out(self, effect: Effect, report: Report | None = None) -> Stimulus | None:
        """Carry out one effect. Returns the stimulus that reports it, if the broker waits for one.

        With `report` a stimulus may be reported before all is done that nobody waits for; then None is
        returned. Raises DiskFailedError.
        """
        match effect:
            case AppendEvents():
                self._logs.append(effect)
            case AppendPfs():
                self._pfs.append(effect)
            case SyncLog(ticket):
                return self._logs.sync(ticket, report)
            case SyncPfs(ticket):
                return self._pfs.sync(ticket)
            case CommitTables(ticket):
                return self._tables.commit(ticket)
            case ReadLog():
                return self._logs.read(effect)
            case FetchLog():
                return self._logs.fetch(effect)
            case WriteCache():
                return self._cache.write(effect)
            case ReadCache():
                return self._cache.read(effect)
            case ChopCache():
                self._cache.chop(effect)
            case ExpireLog():
                return self._logs.expire(effect)
            case ReadPfs():
                return self._pfs.read(effect)
            case CountPfs():
                return self._pfs.count(effect)
            case SaveReleased():
                self._tables.save_released(effect)
            case AppendLease():
                self._logs.lease(effect)
            case AppendMove():
                self._logs.move(effect)
            case LoseLog():
                self._logs.lose(effect)
            case ChopPfs():
                self._pfs.chop(effect)
            case ResumeLog():
                self._logs.resume()
            case SaveSubscription():
                self._tables.save_subscription(effect)
            case DropSubscription():
                self._tables.drop(effect)
            case SaveTopic():
                self._tables.save_topic(effect)
            case SaveHosts():
                self._tables.save_hosts(effect)
            case _:
                raise AssertionError(f"not for the disk: {effect}")
        return None

    @property
    def alarms(self) -> tuple[str, ...]:
        """What an administrator should look at, as long as it stands: damage, and full disks.

        May be asked by any thread. Damage stands until nobody needs the ticks around it any more.
        """
        damage = [f"{volume.path}: {each}" for volume in self._volumes for each in volume.standing_damage()]
        full = [FULL] if self._raw_tables.is_short_of_space else []
        return (*damage[-ALARMS_MAX:], *self._vouching.alarms, *self._alarms.texts, *full)

    @property
    def known_topology(self) -> int:
        """The newest version of the topology that is known to have been saved; 0 if none was."""
        return self._vouching.known.topology

    def topology_saved(self, version: int) -> None:
        """This version of the topology is on disk. Call it on the thread of the event logs."""
        self._vouching.topology_saved(version)

    @property
    def is_full(self) -> bool:
        """Whether the disk of the PFS or of the tables is full. May be asked by any thread."""
        return self.is_waiting or self._raw_tables.is_short_of_space

    @property
    def is_waiting(self) -> bool:
        """Whether something found the disk full: call `retry` every so often then."""
        return self._pfs.is_waiting or self._tables.is_waiting

    def retry(self) -> list[Stimulus]:
        """Try again what waits for room. Returns the stimuli for the broker."""
        return [*self._pfs.retry(), *self._tables.retry()]

    def abandon(self) -> None:
        """Close all files and write nothing, as if the process had died."""
        for volume in self._volumes:
            volume.abandon()
        self._cache.close()
        self._vouching.abandon()
        self._raw_tables.close()

    def close(self) -> None:
        """Make durable what can be made durable, and close the volumes and the tables."""
        for sync in (self._pfs.sync, self._tables.commit):
            with suppress(StorageError):
                sync(0)
        for volume in self._volumes:
            volume.close()
        self._cache.close()
        self._vouching.close()
        self._raw_tables.close()
