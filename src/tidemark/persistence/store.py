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

#: How many alarms are kept; the oldest are dropped.
ALARMS_MAX = 100


class Store:
    """The disk of one broker, from one start to the next."""

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
        """Open the volumes in the two directories, or create them. Raises what `LogVolume.open` raises.

        The store closes `tables` when it is closed. `identity` is a random number of 64 bits, for volumes
        that have to be created. A ReadLog is answered with about `read_bytes` at the most.
        """
        #: Damage and full disks, newest last. Replaced as a whole, under `_lock`; others only read it.
        self.alarms: tuple[str, ...] = ()
        #: how often the broker has started, counting this time; 0 before `recover`
        self.incarnation = 0
        self._log_volume = LogVolume.open(log, identity=identity, segment_bytes=segment_bytes)
        try:
            # Another identity: a segment that was put into the wrong directory by mistake is recognised.
            self._pfs_volume = LogVolume.open(pfs, identity=identity ^ 1, segment_bytes=segment_bytes)
        except BaseException:
            self._log_volume.close()
            raise
        self._volumes = (self._log_volume, self._pfs_volume)
        #: guards `alarms` and `_damage_told`, which both disk threads change
        self._lock = RLock()
        #: how many reports of damage of each volume have become alarms
        self._damage_told = [0, 0]
        self._raw_tables = tables
        self._logs = EventLogs(self._log_volume, read_bytes, self._alarm)
        self._pfs = PfsStore(self._pfs_volume, self._alarm)
        self._tables = TableStore(tables, self._alarm)
        for text in tables.bounded:
            self._alarm(text)

    def recover(self, pubends: Iterable[str], now: Tick) -> Recovered:
        """Returns what the disk knows, for a broker that starts. Call it once, first.

        `pubends` are those hosted here, `now` is the time of day in microseconds. Raises StorageError.
        """
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
        """Open the logs of pubends that are hosted here from now on. Returns what the logs know of each."""
        return {name: self._logs.recover(name, now) for name in pubends}

    def carry_out(self, effect: Effect) -> Stimulus | None:
        """Carry out one effect. Returns the stimulus that reports it, if the broker waits for one.

        Raises DiskFailedError.
        """
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
        """Whether something found the disk full: call `retry` every so often then."""
        return self._pfs.is_waiting or self._tables.is_waiting

    def retry(self) -> list[Stimulus]:
        """Try again what waits for room. Returns the stimuli for the broker."""
        return [*self._pfs.retry(), *self._tables.retry()]

    def close(self) -> None:
        """Make durable what can be made durable, and close the volumes and the tables."""
        for sync in (self._pfs.sync, self._tables.commit):
            with suppress(StorageError):
                sync(0)
        for volume in self._volumes:
            volume.close()
        self._raw_tables.close()

    def _checked(self, answer: Stimulus) -> Stimulus:
        """Returns `answer`. Reading may have found damage, of which alarms are made."""
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
        # A new tuple each time: the event loop may be reading the old one.
        with self._lock:
            self.alarms = (*self.alarms, text)[-ALARMS_MAX:]
