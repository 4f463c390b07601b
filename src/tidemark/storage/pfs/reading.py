"""Reading what subscribers missed: one walk over the extents of a pubend for any number of subscribers."""

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

    `ticks` are exactly those in `(base, upto]` that matched the subscriber (with groups, also some that did
    not). `upto` is the last tick that the PFS knows, unless the limit was reached or the call had read enough
    (ask again from `upto`), or the PFS does not know what comes next: then `unknown` has to be matched again.
    """

    ticks: Ticks
    upto: Tick
    unknown: Range | None
    #: every one of `ticks` matched this subscriber, and not only another one of its group
    is_exact: bool = True


class Stretch(NamedTuple):
    """Known ticks `(base, upto]` and their columns.

    None if the columns have none of the subscribers asked for.
    """

    base: Tick
    upto: Tick
    columns: BlockColumns | None


class StretchSource(Protocol):
    """Where stretches come from: a `FilteredStream`."""

    last: Tick | None

    def stretch(self, tick: Tick, subscribers: Ids) -> Stretch | None:
        """Returns the first known stretch beyond `tick` for these subscribers; None if there is none."""


@dataclass(slots=True)
class _SubscriberReading:
    """How far the reading for one subscriber has got."""

    subscriber: int
    upto: Tick
    room: int
    found: list[Ticks] = field(default_factory=list)
    unknown: Range | None = None
    is_exact: bool = True

    def advance(self, ticks: Ticks, upto: Tick, *, is_exact: bool) -> None:
        """Take over the subscriber's ticks up to `upto`, as many as there is room for."""
        self.is_exact = self.is_exact and (is_exact or not len(ticks))
        if len(ticks) > self.room:
            ticks = ticks[: self.room]
            upto = int(ticks[-1])
        self.found.append(ticks)
        self.room -= len(ticks)
        self.upto = upto

    def missed(self) -> Missed:
        ticks = np.concatenate(self.found) if self.found else np.zeros(0, np.int64)
        return Missed(ticks, self.upto, self.unknown, self.is_exact)


def read_missed(
    source: StretchSource, subscribers: Ids, bases: Ticks, limit: int, reads_max: int
) -> list[Missed]:
    """subscribers[i], bases[i] -> what each missed, up to `limit` ticks, reading up to `reads_max` blocks."""
    assert limit > 0
    pairs = zip(subscribers.tolist(), bases.tolist(), strict=True)
    readers = [_SubscriberReading(subscriber, base, limit) for subscriber, base in pairs]
    active, asked = readers, subscribers
    while active and reads_max > 0:
        if len(active) < len(asked):
            asked = np.array([reader.subscriber for reader in active], np.uint32)
        stretch = source.stretch(min(reader.upto for reader in active), asked)
        if stretch is None:
            _end(active, source.last)
            break
        reads_max -= stretch.columns is not None
        _advance_all(active, stretch)
        active = [reader for reader in active if reader.room > 0 and reader.unknown is None]
    return [reader.missed() for reader in readers]


def _end(readers: list[_SubscriberReading], last: Tick | None) -> None:
    """Nothing more is known: what is left up to the last tick is unknown."""
    for reader in readers:
        if last is not None and reader.upto < last:
            reader.unknown = (reader.upto, last)


def _advance_all(readers: list[_SubscriberReading], stretch: Stretch) -> None:
    """Readers before the stretch meet unknown ticks, readers in it read it, readers beyond it wait."""
    for reader in readers:
        if reader.upto < stretch.base:
            reader.unknown = (reader.upto, stretch.base)
    inside = [reader for reader in readers if stretch.base <= reader.upto < stretch.upto]
    for reader, ticks in zip(inside, _ticks(inside, stretch), strict=True):
        is_exact = stretch.columns is None or not stretch.columns.group_bits
        reader.advance(ticks, stretch.upto, is_exact=is_exact)


def _ticks(readers: list[_SubscriberReading], stretch: Stretch) -> list[Ticks]:
    if stretch.columns is None or not readers:
        return [np.zeros(0, np.int64)] * len(readers)
    subscribers = np.array([reader.subscriber for reader in readers], np.uint32)
    bases = np.array([reader.upto for reader in readers], np.int64)
    return stretch.columns.missed(subscribers, bases, stretch.upto)
