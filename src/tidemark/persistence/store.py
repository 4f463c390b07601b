"""Store: carries out what a broker wants of its disk, on the storage room's logs, PFS and tables.

The same class serves the simulator, on disks in memory, and the broker process, whose disk threads drive it:
no thread, no clock and no waiting of its own. Effects come in order, those for the event logs perhaps from
another thread than the others; each is done when `carry_out` returns, and what it returns is to be told to
the broker. Directories are three:
- the event logs' volume, whose syncs publishers wait for;
- the PFS's volume: a sync of either must not wait for the other's bytes, and a full disk means another thing
  to each, the log forgets a group as a whole where the PFS may forget nothing;
- the tables.
A full disk never fails: the log answers LogFull, the others wait (`is_waiting`, `retry`). DiskFailedError
comes through, and then nobody may do anything but stop.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from threading import RLock

from tidemark.broker.broker import Recovered
from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendPfs,
    ChopPfs,
    CommitTables,
    DropSubscription,
    Effect,
    FetchLog,
    LoseLog,
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
)
from tidemark.errors import StorageError
from tidemark.persistence.event_logs import EventLogs
from tidemark.persistence.pfs_store import PfsStore
from tidemark.persistence.table_store import TableStore
from tidemark.storage.disk.disk import Disk
from tidemark.storage.log.segments.segment import SEGMENT_BYTES
from tidemark.storage.log.volume import READ_BYTES, LogVolume
from tidemark.storage.tables.tables import Tables
from tidemark.ticks import Tick

#: The latest are kept.
ALARMS_MAX = 100


class Store:
    """The disk of one broker, for one of its lives."""

    def __init__(
        self,
        log: Disk,
        pfs: Disk,
        tables: Tables,
        *,
        identity: int,
        segment_bytes: int = SEGMENT_BYTES,
        read_bytes: int = READ_BYTES,
    ) -> None:
        """Open, or make, a volume in each of the two directories. Errors as of LogVolume.open.

        `identity` is a random number of 64 bits, for volumes that have to be made. A ReadLog is answered with
        about `read_bytes` at the most.
        """
        #: what somebody should look at: damage, a full disk
        self.alarms: tuple[str, ...] = ()
        #: which life of the broker this is; 0 before `recover`
        self.incarnation = 0
        self._log_volume = LogVolume.open(log, identity=identity, segment_bytes=segment_bytes)
        try:
            # Segments that are put into the other directory by mistake must be told from its own.
            self._pfs_volume = LogVolume.open(pfs, identity=identity ^ 1, segment_bytes=segment_bytes)
        except BaseException:
            self._log_volume.close()
            raise
        self._volumes = (self._log_volume, self._pfs_volume)
        #: for the alarms and what was told of damage, which both threads meet
        self._lock = RLock()
        self._damage_told = [0, 0]
        self._raw_tables = tables
        self._logs = EventLogs(self._log_volume, read_bytes, self._alarm)
        self._pfs = PfsStore(self._pfs_volume, self._alarm)
        self._tables = TableStore(tables, self._alarm)

    def recover(self, pubends: Iterable[str], now: Tick) -> Recovered:
        """What a new life of the broker finds; `pubends` are those hosted here, `now` is the time of day."""
        assert self.incarnation == 0
        self._tables.now = now
        self.incarnation = self._tables.next_incarnation()
        recovered = Recovered(
            pubends={name: self._logs.recover(name, now) for name in pubends},
            subscriptions=self._tables.subscriptions(),
            next_subscriber=self._tables.next_subscriber(),
            delivered=self._pfs.delivered(),
            topics=self._tables.topics(),
            hosts=self._tables.hosts(),
        )
        self._look_for_damage()
        return recovered

    def open_pubends(self, pubends: Iterable[str], now: Tick) -> dict[str, RecoveredPubend]:
        """What the logs know of pubends that are hosted here from now on; as new as the disk is."""
        return {name: self._logs.recover(name, now) for name in pubends}

    def carry_out(self, effect: Effect) -> Stimulus | None:
        """Do it; what the broker is to be told, if anything."""
        match effect:
            case AppendEvents():
                self._logs.append(effect)
            case AppendPfs():
                self._pfs.append(effect)
            case SyncLog(ticket):
                return self._logs.sync(ticket)
            case SyncPfs(ticket):
                return self._pfs.sync(ticket)
            case CommitTables(ticket):
                return self._tables.commit(ticket)
            case ReadLog():
                return self._checked(self._logs.read(effect))
            case FetchLog():
                return self._checked(self._logs.fetch(effect))
            case ReadPfs():
                return self._checked(self._pfs.read(effect))
            case SaveReleased():
                self._tables.save_released(effect)
            case AppendLease():
                self._logs.lease(effect)
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
    def is_waiting(self) -> bool:
        """The disk was full: `retry` every so often."""
        return self._pfs.is_waiting or self._tables.is_waiting

    def retry(self) -> list[Stimulus]:
        """Try again what waits for room; what the broker is to be told."""
        return [*self._pfs.retry(), *self._tables.retry()]

    def close(self) -> None:
        """Make what was appended last as far as that is possible, and let go of the directories."""
        for sync in (self._pfs.sync, self._tables.commit):
            with suppress(StorageError):
                sync(0)
        for volume in self._volumes:
            volume.close()
        self._raw_tables.close()

    def _checked(self, answer: Stimulus) -> Stimulus:
        """Reading finds damage."""
        self._look_for_damage()
        return answer

    def _look_for_damage(self) -> None:
        with self._lock:
            for at, volume in enumerate(self._volumes):
                damage = volume.damage
                for each in damage[self._damage_told[at] :]:
                    self._alarm(str(each))
                self._damage_told[at] = len(damage)

    def _alarm(self, text: str) -> None:
        # Replaced as a whole: others may be reading it.
        with self._lock:
            self.alarms = (*self.alarms, text)[-ALARMS_MAX:]
