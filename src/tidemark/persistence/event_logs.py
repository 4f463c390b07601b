"""EventLogs: the logs of all pubends hosted here, on one volume, with one group commit for all.

What was appended since the last sync becomes durable together with the next sync. When the disk is full, that
group is dropped, and so is everything appended after it, until the broker says that it has dropped the same
(ResumeLog). Losing ticks on purpose (LoseLog) and letting expired events go (ExpireLog) are the exception,
because that makes room: it is remembered, and done as soon as there is room for the record of it.

What a crash may lose: the group since the last sync. That is safe because publishers are acknowledged, and
silence is advertised, only after the sync. A group that has only events of pubends whose durability is "os"
is not synced but handed to the operating system: a power failure may lose it, until the next sync, which
comes with the next lease at the latest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    AppendMove,
    ExpireLog,
    FetchLog,
    LogExpired,
    LogFetched,
    LogFull,
    LogRead,
    LogSynced,
    LoseLog,
    ReadLog,
    RecoveredPubend,
    Stimulus,
)
from tidemark.errors import DiskFullError
from tidemark.persistence.alarm import Alarms
from tidemark.persistence.vouching import Vouching
from tidemark.storage.events.event_log import EventLog
from tidemark.storage.events.publishers import LastPublished
from tidemark.storage.log.volume import LogVolume
from tidemark.ticks import TICK_MIN, Tick

#: Bytes that may be appended and not synced. The volume holds as much again, for records of the logs' own.
UNSYNCED_BYTES_MAX = 64 << 20

#: Tells whoever waits for an effect that it was carried out.
Report = Callable[[Stimulus], None]

#: The cause of the alarm about a full disk.
FULL = "full log"


class EventLogs:
    """The event logs of one broker, for effects that concern them."""

    def __init__(
        self,
        volume: LogVolume,
        vouching: Vouching,
        read_bytes: int,
        alarms: Alarms,
        os_pubends: Collection[str] = (),
    ) -> None:
        """`volume` belongs to the store. A read returns about `read_bytes` at the most.

        Events of `os_pubends` are durable once the operating system has them.
        """
        self._os_pubends = frozenset(os_pubends)
        #: something has come since the last sync that has to be on the platter
        self._needs_sync = False
        self._volume = volume
        self._vouching = vouching
        self._read_bytes = read_bytes
        self._alarms = alarms
        #: pubend -> its log, which stays open when the pubend leaves the topology: it may come back
        self._logs: dict[str, EventLog] = {}
        #: bytes of the batches appended since the last sync, or since the broker dropped what was full
        self._unsynced_bytes = 0
        #: pubend -> the first tick appended since the last sync; reads end before it
        self._unsynced: dict[str, Tick] = {}
        #: pubend -> the last tick to lose on purpose, while that is not synced
        self._let_go: dict[str, Tick] = {}
        #: pubend -> the last tick that was let go because it had expired, and when it was, while that is not
        #: synced
        self._expiring: dict[str, tuple[Tick, int]] = {}
        #: the group since the last sync does not fit, so none of it will be written
        self._is_over = False
        #: LogFull was reported, and the broker has not answered with ResumeLog
        self._is_full = False

    def recover(self, pubend: str, now: Tick) -> RecoveredPubend:
        """Open the log of a pubend, if it is not open. Returns what it knows. Errors as of `EventLog`."""
        log = self._logs.get(pubend)
        if log is None:
            log = self._logs[pubend] = EventLog(self._volume, pubend, now=now)
        state = log.state
        return RecoveredPubend(
            last=state.last_tick,
            lease=state.lease,
            lost=state.lost,
            publishers=state.publishers,
            sizes=log.sizes(),
            is_damaged=bool(state.damage),
            moves=state.moves,
        )

    def append(self, effect: AppendEvents) -> None:
        """Append a batch, durable with the next sync."""
        self._unsynced_bytes += len(effect.batch.data)
        self._is_over |= self._unsynced_bytes > UNSYNCED_BYTES_MAX
        if self._is_over:
            return
        self._needs_sync |= effect.pubend not in self._os_pubends
        self._unsynced.setdefault(effect.pubend, int(effect.batch.ticks[0]))
        self._logs[effect.pubend].append(effect.batch, effect.publisher, effect.sequence)

    def lease(self, effect: AppendLease) -> None:
        """Promise, durable with the next sync, that no later event gets a tick up to `effect.upto`."""
        if not self._is_over:
            self._needs_sync = True
            self._logs[effect.pubend].lease(effect.upto)

    def move(self, effect: AppendMove) -> None:
        """Note, durable with the next sync, that a publisher has left or come, whatever the durability is."""
        if not self._is_over:
            self._needs_sync = True
            last = LastPublished(effect.sequence, effect.tick)
            self._logs[effect.pubend].move(effect.publisher, last, effect.move)

    def lose(self, effect: LoseLog) -> None:
        """Lose ticks on purpose, with the next sync or, if that finds no room, with the first that does."""
        self._let_go[effect.pubend] = max(effect.upto, self._let_go.get(effect.pubend, effect.upto))
        if not self._is_over:
            self._logs[effect.pubend].lose(effect.upto)

    def expire(self, effect: ExpireLog) -> LogExpired:
        """Let expired events go, with the next sync or, if that finds no room, with the first that does."""
        if self._is_over:
            return LogExpired(effect.pubend, TICK_MIN, effect.wall)  # nothing is written: ask again
        log = self._logs[effect.pubend]
        expired = log.expire(effect.wall, self._synced_upto(effect.pubend, effect.upto), self._read_bytes)
        self._expiring[effect.pubend] = expired.upto, effect.wall
        return LogExpired(effect.pubend, expired.upto, expired.due)

    def sync(self, ticket: int, report: Report | None = None) -> LogSynced | LogFull | None:
        """Make the group durable, or drop it if the disk is full. Returns the stimulus that says which.

        With `report` that is told as soon as the group is durable, before the witness knows of it, which
        nobody waits for; None is returned then. Returns None too while the broker has not answered an earlier
        LogFull. Raises DiskFailedError.
        """
        if self._is_full:
            return None
        if self._is_over:
            self._volume.discard()
            return self._refuse(ticket, f"over {UNSYNCED_BYTES_MAX} bytes wait to be written")
        try:
            if self._needs_sync:
                self._vouching.syncs_log()
                self._volume.sync()
            else:
                self._volume.flush()
        except DiskFullError as error:
            return self._refuse(ticket, str(error))
        was_synced, self._needs_sync = self._needs_sync, False
        self._alarms.is_over(FULL)
        self._unsynced.clear()
        self._unsynced_bytes = 0
        self._has_let_go()
        synced = LogSynced(ticket)
        if report is not None:
            report(synced)
        if was_synced:
            self._vouching.log_synced()
        return synced if report is None else None

    def resume(self) -> None:
        """The broker has dropped what was dropped here: what comes now is appended again."""
        self._is_over = self._is_full = False
        self._unsynced_bytes = 0
        self._lose_again()

    def fetch(self, effect: FetchLog) -> LogFetched:
        """Read as `read` does, up to `effect.bytes_max` bytes: for clients that read in bulk."""
        asked = ReadLog(effect.pubend, effect.base, effect.upto)
        return LogFetched(effect.ticket, self.read(asked, effect.bytes_max))

    def read(self, effect: ReadLog, bytes_max: int | None = None) -> LogRead:
        """Returns the synced events of the first part of the range, as many as one answer holds."""
        log = self._logs[effect.pubend]
        upto = max(effect.base, self._synced_upto(effect.pubend, effect.upto))
        answer = log.read(effect.base, upto, bytes_max or self._read_bytes)
        lost = log.lost
        damaged = tuple((max(base, lost), last) for base, last in answer.lost if last > lost)
        return LogRead(
            effect.pubend, effect.base, answer.upto, effect.upto, lost, tuple(answer.batches), damaged
        )

    def _refuse(self, ticket: int, reason: str) -> LogFull:
        self._is_over = self._is_full = self._needs_sync = True
        self._unsynced.clear()
        self._alarms.stands(FULL, f"{reason}; publishing is refused until there is room")
        self._make_room()
        return LogFull(ticket)

    def _make_room(self) -> None:
        """Losing ticks was dropped with its group: try it again without the rest of the group."""
        self._lose_again()
        for log in self._logs.values():
            log.free()
        try:
            self._volume.sync()
        except DiskFullError:
            return
        self._has_let_go()

    def _lose_again(self) -> None:
        for pubend, upto in self._let_go.items():
            self._logs[pubend].lose(upto)
        for pubend, (upto, wall) in self._expiring.items():
            self._logs[pubend].expire(wall, upto, bytes_max=None)

    def _has_let_go(self) -> None:
        self._let_go.clear()
        self._expiring.clear()

    def _synced_upto(self, pubend: str, upto: Tick) -> Tick:
        """Return `upto`, or the tick before the first event that is not synced if that is earlier."""
        unsynced = self._unsynced.get(pubend)
        return upto if unsynced is None else min(upto, unsynced - 1)
