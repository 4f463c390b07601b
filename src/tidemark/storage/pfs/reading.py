"""Reading what subscribers missed: one walk over the extents of a pubend for any number of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from tidemark.storage.pfs.columns import BlockColumns
from tidemark.storage.pfs.record import Ids
from tidemark.ticks import Range, Tick, Ticks


@dataclass(frozen=True, slots=True)
class Missed:
    """What the PFS knows of one subscriber beyond a base.

    `ticks` are exactly those in `(base, upto]` that matched it (or, of a PFS with groups, those and some that
    did not). `upto` is the last tick the PFS knows, unless the limit was reached, or one call had read enough
    (ask again from `upto`), or the PFS does not know what comes next: `unknown` is to be filtered anew.
    """

    ticks: Ticks
    upto: Tick
    unknown: Range | None


class Stretch(NamedTuple):
    """Known ticks `(base, upto]`, and the columns that speak of them; None: nobody who asked is in them."""

    base: Tick
    upto: Tick
    columns: BlockColumns | None


class StretchSource(Protocol):
    """Where stretches come from."""

    last: Tick | None

    def stretch(self, tick: Tick, subscribers: Ids) -> Stretch | None:
        """The first known stretch beyond `tick`, for these subscribers; None when there is none."""


@dataclass(slots=True)
class _SubscriberReading:
    """How far one subscriber's reading got."""

    subscriber: int
    upto: Tick
    room: int
    found: list[Ticks] = field(default_factory=list)
    unknown: Range | None = None

    def advance(self, ticks: Ticks, upto: Tick) -> None:
        """These are its ticks up to `upto`."""
        if len(ticks) > self.room:
            ticks = ticks[: self.room]
            upto = int(ticks[-1])
        self.found.append(ticks)
        self.room -= len(ticks)
        self.upto = upto

    def missed(self) -> Missed:
        ticks = np.concatenate(self.found) if self.found else np.zeros(0, np.int64)
        return Missed(ticks, self.upto, self.unknown)


def read_missed(
    source: StretchSource, subscribers: Ids, bases: Ticks, limit: int, reads_max: int
) -> list[Missed]:
    """subscribers[i], bases[i] -> what each missed, at most `limit` ticks of it, from `reads_max` blocks."""
    assert limit > 0
    pairs = zip(subscribers.tolist(), bases.tolist(), strict=True)
    readers = [_SubscriberReading(subscriber, base, limit) for subscriber, base in pairs]
    active = readers
    while active and reads_max > 0:
        position = min(reader.upto for reader in active)
        asked = np.array([reader.subscriber for reader in active], np.uint32)
        stretch = source.stretch(position, asked)
        if stretch is None:
            _end(active, source.last)
            break
        reads_max -= stretch.columns is not None
        _advance_all(active, stretch)
        active = [reader for reader in active if reader.room > 0 and reader.unknown is None]
    return [reader.missed() for reader in readers]


def _end(readers: list[_SubscriberReading], last: Tick | None) -> None:
    """Nothing more is known."""
    for reader in readers:
        if last is not None and reader.upto < last:
            reader.unknown = (reader.upto, last)


def _advance_all(readers: list[_SubscriberReading], stretch: Stretch) -> None:
    """Those who are before the stretch meet the unknown, those in it read it, those beyond it wait."""
    for reader in readers:
        if reader.upto < stretch.base:
            reader.unknown = (reader.upto, stretch.base)
    inside = [reader for reader in readers if stretch.base <= reader.upto < stretch.upto]
    for reader, ticks in zip(inside, _ticks(inside, stretch), strict=True):
        reader.advance(ticks, stretch.upto)


def _ticks(readers: list[_SubscriberReading], stretch: Stretch) -> list[Ticks]:
    if stretch.columns is None or not readers:
        return [np.zeros(0, np.int64)] * len(readers)
    subscribers = np.array([reader.subscriber for reader in readers], np.uint32)
    bases = np.array([reader.upto for reader in readers], np.int64)
    return stretch.columns.missed(subscribers, bases, stretch.upto)
