"""Backlog: bytes that were given to the disk and are not durable yet. Its bound is what publishers feel."""

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


class _UnsyncedBytes:
    """Bytes of one log."""

    def __init__(self) -> None:
        self.appended = 0
        self.durable = 0
        #: ticket of a sync -> bytes appended before it
        self._syncs: dict[int, int] = {}

    def sync(self, ticket: int) -> None:
        """A sync was asked for."""
        self._syncs[ticket] = self.appended

    def synced(self, ticket: int) -> None:
        """It is done, or what it covers was forgotten."""
        self.durable = max(self.durable, self._syncs.pop(ticket, 0))


class Backlog:
    """How far the disk is behind."""

    def __init__(self) -> None:
        #: the last group of events found no room
        self.is_log_full = False
        self._log = _UnsyncedBytes()
        self._pfs = _UnsyncedBytes()

    @property
    def bytes(self) -> int:
        """Bytes that wait, in memory or in the system's cache."""
        log, pfs = self._log, self._pfs
        return log.appended - log.durable + pfs.appended - pfs.durable

    def put(self, effects: Iterable[Effect]) -> None:
        """These are on their way to the disk."""
        for effect in effects:
            match effect:
                case AppendEvents(batch=batch):
                    self._log.appended += len(batch.data)
                case AppendPfs(ticks=ticks, sets=sets):
                    self._pfs.appended += ticks.nbytes + sets.nbytes
                case SyncLog(ticket):
                    self._log.sync(ticket)
                case SyncPfs(ticket):
                    self._pfs.sync(ticket)
                case ResumeLog():
                    self._log.durable = self._log.appended
                case _:
                    pass

    def done(self, stimuli: Iterable[Stimulus]) -> None:
        """These came back from it."""
        for stimulus in stimuli:
            match stimulus:
                case LogSynced(ticket) | LogFull(ticket):
                    self.is_log_full = isinstance(stimulus, LogFull)
                    self._log.synced(ticket)
                case PfsSynced(ticket):
                    self._pfs.synced(ticket)
                case _:
                    pass
