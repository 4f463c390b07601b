"""Catchup: the private stream of one subscriber that is behind the constream (DSN'03 4.1).

The PFS says which ticks matched, so nothing is matched again; the events are taken from the window or asked
for; what arrives is held until everything before it has. It ends where the constream is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import NO_TICKS
from tidemark.wire.frames import Range

Ticks = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Matches read from the PFS at once; also bounds the events held.
CHUNK_EVENTS = 512
#: Ranges asked for at once: beyond it neighbouring ticks are asked for with what lies between them.
ASK_RANGES_MAX = 64


class Catchup:
    """One subscriber, one pubend. `position` is told up to."""

    def __init__(self, position: int) -> None:
        self.position = position
        #: an answer of the PFS is under way
        self.is_reading = False
        #: the PFS has said all up to here
        self._scanned = position
        #: matched ticks in `(position, scanned]`, none of them told yet, and which of their events are held
        self._ticks: Ticks = NO_TICKS
        self._have: Mask = np.zeros(0, np.bool_)
        self._held: list[EventBatch] = []

    @property
    def needs_read(self) -> bool:
        """All that the PFS said has been told: it has to be asked on."""
        return not self.is_reading and self.position >= self._scanned

    def matched(self, base: int, upto: int, ticks: Ticks) -> None:
        """The PFS: in `(base, upto]` exactly `ticks` matched."""
        self.is_reading = False
        if base > self._scanned or upto <= self._scanned:
            return
        new = ticks[ticks > self._scanned]
        self._ticks = np.concatenate((self._ticks, new))
        self._have = np.concatenate((self._have, np.zeros(len(new), np.bool_)))
        self._scanned = upto

    def missing(self) -> list[Range]:
        """What to ask for, in few ranges."""
        return _ranges(self._ticks[~self._have])

    def arrived(self, base: int, upto: int, batch: EventBatch | None) -> None:
        """Events in `(base, upto]`; a matched tick that is not among them is not there any more."""
        lacking = (self._ticks > base) & (self._ticks <= upto) & ~self._have
        if not lacking.any():
            return
        if batch is not None:
            rows = np.isin(batch.ticks, self._ticks[lacking])
            if rows.any():
                self._held.append(batch.take(rows))
                self._have |= lacking & np.isin(self._ticks, batch.ticks)
        gone = lacking & ~self._have
        self._keep(~gone)

    def ready(self, credit: int) -> tuple[int, EventBatch | None] | None:
        """What can be told next: up to which tick, and the events; None when nothing can."""
        absent = np.flatnonzero(~self._have)
        stop = min(int(absent[0]) if len(absent) else len(self._ticks), credit)
        upto = int(self._ticks[stop]) - 1 if stop < len(self._ticks) else self._scanned
        if upto <= self.position:
            return None
        self.position = upto
        due = list(self._split(upto))
        self._keep(self._ticks > upto)
        if not due:
            return upto, None
        whole = concatenate(due)
        return upto, whole.take(np.argsort(whole.ticks, kind="stable"))

    def lost(self, upto: int) -> int | None:
        """A gap, if the next matched tick is at or below `upto` and not here: up to where it reaches."""
        if not len(self._ticks) or self._have[0] or self._ticks[0] > upto:
            return None
        held = self._ticks[self._have & (self._ticks <= upto)]
        return int(held[0]) - 1 if len(held) else upto

    def skip(self, upto: int) -> None:
        """Told up to `upto` without events: a gap, or history that is not here."""
        self.position = max(self.position, upto)
        self._keep(self._ticks > upto)
        self._scanned = max(self._scanned, upto)

    def _keep(self, rows: Mask) -> None:
        self._ticks, self._have = self._ticks[rows], self._have[rows]

    def _split(self, upto: int) -> Iterator[EventBatch]:
        """Held rows up to `upto`, which are then no longer held."""
        later: list[EventBatch] = []
        for batch in self._held:
            if batch.ticks[0] > upto:
                later.append(batch)
            elif batch.ticks[-1] <= upto:
                yield batch
            else:
                due = batch.ticks <= upto
                yield batch.take(due)
                later.append(batch.take(~due))
        self._held = later


def _ranges(ticks: Ticks) -> list[Range]:
    """Ranges that hold these ticks, at most ASK_RANGES_MAX: cut where the gaps between them are widest."""
    if not len(ticks):
        return []
    steps = np.diff(ticks)
    widest = np.argsort(-steps, kind="stable")[: ASK_RANGES_MAX - 1]
    cuts = np.sort(widest[steps[widest] > 1]) + 1
    firsts = ticks[np.concatenate(([0], cuts))]
    lasts = ticks[np.concatenate((cuts - 1, [len(ticks) - 1]))]
    return list(zip((firsts - 1).tolist(), lasts.tolist(), strict=True))
