"""EventLogs: the logs of all pubends hosted here, on one volume, with one group commit for all.

What was appended since the last sync becomes durable with the next one or, when the disk is full, is
forgotten with all that follows, until the broker says that it has forgotten it too (ResumeLog). Letting go
is the exception: what may go may go, so it is remembered and done as soon as there is room for the note of
it, which is what makes room.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.effects import (
    AppendEvents,
    AppendLease,
    FetchLog,
    LogFetched,
    LogFull,
    LogRead,
    LogSynced,
    LoseLog,
    ReadLog,
    RecoveredPubend,
)
from tidemark.errors import DiskFullError
from tidemark.storage.events.event_log import EventLog
from tidemark.storage.log.volume import LogVolume
from tidemark.ticks import Tick

#: Appended and not synced. The volume holds as much again, for what the logs write on their own account.
UNSYNCED_BYTES_MAX = 64 << 20


class EventLogs:
    """See above."""

    def __init__(self, volume: LogVolume, read_bytes: int, alarm: Callable[[str], None]) -> None:
        self._volume = volume
        self._read_bytes = read_bytes
        self._alarm = alarm
        self._logs: dict[str, EventLog] = {}
        #: pubend -> the first tick appended since the last sync: nobody reads that far
        self._unsynced: dict[str, Tick] = {}
        #: pubend -> up to where it may go, as far as that is not synced
        self._let_go: dict[str, Tick] = {}
        #: the group has no room, so none of it will be written
        self._is_over = False
        #: the broker was told so, and has not answered
        self._is_full = False

    def recover(self, pubend: str, now: Tick) -> RecoveredPubend:
        """Open the log of a pubend; what it knows. One that was hosted before in this life is open still."""
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
        )

    def append(self, effect: AppendEvents) -> None:
        """One more batch for the next sync."""
        self._is_over |= self._volume.pending_bytes + len(effect.batch.data) > UNSYNCED_BYTES_MAX
        if self._is_over:
            return
        self._unsynced.setdefault(effect.pubend, int(effect.batch.ticks[0]))
        self._logs[effect.pubend].append(effect.batch, effect.publisher, effect.sequence)

    def lease(self, effect: AppendLease) -> None:
        """A promise for the next sync."""
        if not self._is_over:
            self._logs[effect.pubend].lease(effect.upto)

    def lose(self, effect: LoseLog) -> None:
        """Let go with the next sync, or with the first that succeeds."""
        self._let_go[effect.pubend] = max(effect.upto, self._let_go.get(effect.pubend, effect.upto))
        if not self._is_over:
            self._logs[effect.pubend].lose(effect.upto)

    def sync(self, ticket: int) -> LogSynced | LogFull | None:
        """Make the group last, or forget it; None while the broker does not know yet that it is forgotten."""
        if self._is_full:
            return None
        if self._is_over:
            self._volume.discard()
            return self._refuse(ticket, f"over {UNSYNCED_BYTES_MAX} bytes wait to be written")
        try:
            self._volume.sync()
        except DiskFullError as error:
            return self._refuse(ticket, str(error))
        self._unsynced.clear()
        self._let_go.clear()
        return LogSynced(ticket)

    def resume(self) -> None:
        """The broker has forgotten what was forgotten here: what comes now counts."""
        self._is_over = self._is_full = False
        self._lose_again()

    def fetch(self, effect: FetchLog) -> LogFetched:
        """The same, for somebody who reads in bulk."""
        asked = ReadLog(effect.pubend, effect.base, effect.upto)
        return LogFetched(effect.ticket, self.read(asked, effect.bytes_max))

    def read(self, effect: ReadLog, bytes_max: int | None = None) -> LogRead:
        """A first part of what was asked for; nothing that is not synced."""
        log, upto = self._logs[effect.pubend], effect.upto
        unsynced = self._unsynced.get(effect.pubend)
        if unsynced is not None:
            upto = max(effect.base, min(upto, unsynced - 1))
        answer = log.read(effect.base, upto, bytes_max or self._read_bytes)
        lost = log.lost
        damaged = tuple((max(base, lost), last) for base, last in answer.lost if last > lost)
        return LogRead(
            effect.pubend, effect.base, answer.upto, effect.upto, lost, tuple(answer.batches), damaged
        )

    def _refuse(self, ticket: int, reason: str) -> LogFull:
        self._is_over = self._is_full = True
        self._unsynced.clear()
        self._alarm(f"{reason}; publishing is refused until there is room")
        self._make_room()
        return LogFull(ticket)

    def _make_room(self) -> None:
        """What may go was forgotten with its group, but does not need the rest of it."""
        self._lose_again()
        try:
            self._volume.sync()
        except DiskFullError:
            return
        self._let_go.clear()

    def _lose_again(self) -> None:
        for pubend, upto in self._let_go.items():
            self._logs[pubend].lose(upto)
