"""Backlog: the memory that waits for the disk, given to disk threads and not durable yet, and whose it is.

The runtime stops reading from publishers while the backlog is over `limits.disk_queue`, so publishers feel a
slow disk as back-pressure. It stops reading from one publisher when that one alone has too much under way:
events of all publishers are synced together, and each waits for the bytes of the others.
"""

from __future__ import annotations

from collections import deque
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
        #: bytes that were given to the event logs since the start, and how many of them are durable or were
        #: dropped by a full disk; `put` and `done` change them
        self.logged = 0
        self.durable = 0
        #: ticket of a sync of the event logs -> bytes given to them before it
        self._log_syncs: dict[int, int] = {}
        self._pfs = _UnsyncedBytes()

    @property
    def bytes(self) -> int:
        """Bytes that wait to become durable, in memory or in the operating system's cache."""
        return self.logged - self.durable + self._pfs.appended - self._pfs.durable

    def put(self, effects: Iterable[Effect]) -> None:
        """These effects were given to the disk threads."""
        for effect in effects:
            kind = type(effect)
            if kind is AppendEvents:
                self.logged += effect.batch.held_bytes + APPEND_BYTES  # type: ignore[union-attr]
            elif kind is SyncLog:
                self._log_syncs[effect.ticket] = self.logged  # type: ignore[union-attr]
            elif isinstance(effect, AppendPfs):
                self._pfs.appended += effect.ticks.nbytes + effect.sets.nbytes + effect.lengths.nbytes
                self._pfs.appended += APPEND_BYTES
            elif isinstance(effect, SyncPfs):
                self._pfs.sync(effect.ticket)
            elif kind is ResumeLog:
                self.durable = self.logged

    def done(self, stimuli: Iterable[Stimulus]) -> None:
        """The disk threads report these completions."""
        for stimulus in stimuli:
            match stimulus:
                case LogSynced(ticket) | LogFull(ticket):
                    self.is_log_full = type(stimulus) is LogFull
                    upto = self._log_syncs.pop(ticket, 0)
                    if upto > self.durable:
                        self.durable = upto
                case PfsSynced(ticket):
                    self._pfs.synced(ticket)
                case _:
                    pass


#: What a batch counts for besides its bytes: small batches cost time rather than room on the disk.
BATCH_WEIGHT = 16 << 10
#: The same when it is asked whose time was used.
SMALL_BYTES = 2 << 10
#: Each publisher may have this much under way, however many there are.
SHARE_MIN = 64 << 10
#: While several publish, all of them together may have one part in so many of what one alone may have: each
#: waits for the bytes of the others. One that has had nothing under way for so many syncs does not count.
CROWD_PART = 4
RECENT_SYNCS = 256


class InFlight:
    """What each publisher has under way to the event logs, in bytes and BATCH_WEIGHT for each batch."""

    def __init__(self, bytes_max: int) -> None:
        """`bytes_max`: for all publishers that have something under way, in equal shares."""
        self._bytes_max = bytes_max
        #: client -> what it has under way in all; and of each part the bytes in the logs up to its end, its
        #: weight and its batches
        self._weights: dict[int, int] = {}
        self._parts: dict[int, deque[tuple[int, int, int]]] = {}
        #: client -> the batches that it has under way
        self._batches: dict[int, int] = {}
        #: how often something became durable; and client -> how often until its last part came, the one that
        #: has been silent for longest first
        self._syncs = 0
        self._recent: dict[int, int] = {}

    def add(self, client: int, batches: int, before: int, logged: int) -> None:
        """`client` has sent batches that took the logs from `before` bytes to `logged`."""
        weight = logged - before + BATCH_WEIGHT * batches
        self._parts.setdefault(client, deque()).append((logged, weight, batches))
        self._batches[client] = self._batches.get(client, 0) + batches
        self._weights[client] = self._weights.get(client, 0) + weight
        self._recent.pop(client, None)
        self._recent[client] = self._syncs

    def done(self, durable: int) -> None:
        """The logs are durable up to `durable` bytes."""
        for client, parts in list(self._parts.items()):
            while parts and parts[0][0] <= durable:
                _, weight, batches = parts.popleft()
                self._weights[client] -= weight
                self._batches[client] -= batches
            if not parts:
                self._parts.pop(client)
                self._weights.pop(client)
                self._batches.pop(client)
        self._syncs += 1
        while self._recent and next(iter(self._recent.values())) < self._syncs - RECENT_SYNCS:
            self._recent.pop(next(iter(self._recent)))

    def parts(self) -> list[tuple[int, float]]:
        """Return each client that has something under way, and what part of all those bytes is its own.

        What is done with events takes time by their bytes; BATCH_WEIGHT would be too much for small ones.
        """
        if len(self._weights) == 1:
            return [(client, 1.0) for client in self._weights]
        sizes = {
            client: self._weights[client] - (BATCH_WEIGHT - SMALL_BYTES) * self._batches[client]
            for client in self._weights
        }
        total = sum(sizes.values())
        return [(client, size / total) for client, size in sizes.items()]

    def forget(self, client: int) -> None:
        """`client` is gone."""
        self._recent.pop(client, None)
        self._parts.pop(client, None)
        self._weights.pop(client, None)
        self._batches.pop(client, None)

    def has(self, client: int) -> bool:
        """Return whether anything of `client` is under way."""
        return client in self._weights

    def is_over(self, client: int) -> bool:
        """Return whether `client` has more under way than its share."""
        share = self._share() if len(self._recent) > 1 else self._bytes_max
        return self._weights.get(client, 0) > share

    def has_room(self, client: int) -> bool:
        """Return whether `client` has used no more than half of its share."""
        return self._weights.get(client, 0) <= self._share() // 2

    def _share(self) -> int:
        publishers = len(self._recent)
        if publishers <= 1:
            return self._bytes_max
        return max(SHARE_MIN, self._bytes_max // CROWD_PART // publishers)
