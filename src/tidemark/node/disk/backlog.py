"""Backlog: how much memory waits for the disk: what was given to the disk threads and is not durable yet.

The runtime stops reading from publishers while the backlog is over `limits.disk_queue`, so publishers feel a
slow disk as back-pressure.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidemark.broker.effects import (
    AppendEvents,
    AppendPfs,
    Effect,
    LogFull,
    LogSynced,
    PfsSynced,
    ResumeLog,
    Stimulus,
    SyncLog,
    SyncPfs,
)

#: Memory of an append besides its events or arrays: the effect, the record of the log, and what the core does
#: when it is durable.
APPEND_BYTES = 1_024


class _UnsyncedBytes:
    """Bytes that were appended to one log, and how many of them are durable."""

    def __init__(self) -> None:
        #: since the start, in bytes
        self.appended = 0
        self.durable = 0
        #: ticket of a sync -> bytes appended before it
        self._syncs: dict[int, int] = {}

    def sync(self, ticket: int) -> None:
        """A sync under this ticket was given to the disk."""
        self._syncs[ticket] = self.appended

    def synced(self, ticket: int) -> None:
        """The sync of this ticket is done, or the log has dropped what the sync was to make durable."""
        self.durable = max(self.durable, self._syncs.pop(ticket, 0))


class Backlog:
    """How far the disk is behind, for the event logs and the PFS together."""

    def __init__(self) -> None:
        #: whether the last sync of the event logs found the disk full
        self.is_log_full = False
        self._log = _UnsyncedBytes()
        self._pfs = _UnsyncedBytes()

    @property
    def bytes(self) -> int:
        """Bytes that wait to become durable, in memory or in the operating system's cache."""
        log, pfs = self._log, self._pfs
        return log.appended - log.durable + pfs.appended - pfs.durable

    def put(self, effects: Iterable[Effect]) -> None:
        """These effects were given to the disk threads."""
        for effect in effects:
            match effect:
                case AppendEvents(batch=batch):
                    self._log.appended += batch.held_bytes + APPEND_BYTES
                case AppendPfs(ticks=ticks, sets=sets):
                    self._pfs.appended += ticks.nbytes + sets.nbytes + APPEND_BYTES
                case SyncLog(ticket):
                    self._log.sync(ticket)
                case SyncPfs(ticket):
                    self._pfs.sync(ticket)
                case ResumeLog():
                    self._log.durable = self._log.appended
                case _:
                    pass

    def done(self, stimuli: Iterable[Stimulus]) -> None:
        """The disk threads report these completions."""
        for stimulus in stimuli:
            match stimulus:
                case LogSynced(ticket) | LogFull(ticket):
                    self.is_log_full = isinstance(stimulus, LogFull)
                    self._log.synced(ticket)
                case PfsSynced(ticket):
                    self._pfs.synced(ticket)
                case _:
                    pass
