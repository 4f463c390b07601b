"""PersistentFiltering: the PFS of one subscriber hosting broker (DSN'03 4.2).

Holds for every pubend which ticks matched which durable subscriber, so that a subscriber who returns need not
have its events filtered again. It promises:
- Precise: a read reports exactly the ticks that matched, in a range that it names. With `group_bits` it is
  imprecise: subscribers whose numbers differ in the lowest bits only share what is stored, a read may report
  ticks that matched another of the group, and never fewer. That makes definitions shorter and sets fewer.
- What it says of a tick is what matched when the tick was appended: before a selector's change the old
  selector, after it the new one. Of ticks before a subscriber was made it says nothing about that subscriber.
  Numbers of subscribers are never used again.
- A tick is appended once: what comes again after a crash is recognised by its tick and not doubled.
- At most 8 + 16n bytes an event that matched n subscribers, the paper's size; usually about 4. Only a sync
  with next to nothing in it takes more, because the volume's header outweighs it: one event of less than
  five subscribers, or three of one each. Where that matters, sync less often.
- Damage and other holes are unknown, never silence.

The order of things is the caller's: append, `sync`, and only then let latest_delivered go up to what `sync`
returned. When the disk is full, all that was appended since the last sync is forgotten: append it again, from
`last` on. Nothing here may be called from two threads at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs.blocklog import BlockLog
from tidemark.storage.pfs.cache import CACHE_BYTES_MAX, BlockCache
from tidemark.storage.pfs.openblock import MembersOf
from tidemark.storage.pfs.reading import Missed, read_missed
from tidemark.storage.pfs.record import Ids
from tidemark.storage.pfs.stream import FilteredStream
from tidemark.ticks import Range, Tick, Ticks

#: A call reads no more blocks than this, so that no one waits long for the disk because of another.
READ_BLOCKS_MAX = 256

_PREFIX = "pfs/"


class Filtered(NamedTuple):
    """Events of a range that were filtered anew: as `append` takes them."""

    ticks: Ticks
    sets: Ids
    members: MembersOf


class PersistentFiltering:
    """Which ticks matched which durable subscriber, a log stream a pubend."""

    def __init__(
        self,
        volume: LogVolume,
        *,
        group_bits: int = 0,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        read_blocks_max: int = READ_BLOCKS_MAX,
    ) -> None:
        assert 0 <= group_bits < 32
        self._volume = volume
        self._group_bits = group_bits
        self._cache = BlockCache(cache_bytes_max)
        self._read_blocks_max = read_blocks_max
        #: opened so far; a pubend is recovered when it is first asked for
        self._streams: dict[str, FilteredStream] = {}

    @property
    def pubends(self) -> list[str]:
        """Those that anything is, or was, held of."""
        return [name.removeprefix(_PREFIX) for name in self._volume.streams if name.startswith(_PREFIX)]

    def last(self, pubend: str) -> Tick | None:
        """Up to where this pubend was appended, None if nothing is left of it; safe as far as `sync` said."""
        return self._stream(pubend).last

    def append(
        self, pubend: str, base: Tick, upto: Tick, ticks: Ticks, sets: Ids, members: MembersOf
    ) -> None:
        """Of `(base, upto]` the events at ticks[row] matched the subscribers members(sets[row]).

        Ticks strictly increase. Everything not listed, or listed with set 0, is silence for every subscriber
        of this time. What is known already stays as it is, so the same may be appended again. If `base` is
        beyond the last tick known, what lies between is unknown. `members` is asked during this call only; a
        number must mean the same set as long as the same function (or method of the same object) is given.
        """
        self._stream(pubend).append(base, upto, ticks, sets, members)

    def flush(self) -> dict[str, Tick]:
        """Hand everything to the log volume. {pubend: tick}: safe once the volume has synced."""
        for stream in list(self._streams.values()):
            stream.flush()
        return {pubend: stream.last for pubend, stream in self._streams.items() if stream.last is not None}

    def sync(self) -> dict[str, Tick]:
        """Make everything appended so far safe. {pubend: tick}: up to where that is."""
        upto = self.flush()
        self._volume.sync()
        return upto

    def read(self, pubend: str, subscriber: int, base: Tick, limit: int) -> Missed:
        """What matched a subscriber beyond `base`, at most `limit` ticks of it."""
        return self.read_many(pubend, {subscriber: base}, limit)[subscriber]

    def read_many(self, pubend: str, bases: Mapping[int, Tick], limit: int) -> dict[int, Missed]:
        """As `read` for many subscribers at once, each from a base of its own, in one scan."""
        subscribers = np.fromiter(bases.keys(), np.uint32, len(bases))
        starts = np.fromiter(bases.values(), np.int64, len(bases))
        stream = self._stream(pubend)
        missed = read_missed(stream, subscribers, starts, limit, self._read_blocks_max)
        return dict(zip(bases, missed, strict=True))

    def unknown(self, pubend: str, base: Tick, upto: Tick) -> list[Range]:
        """The parts of `(base, upto]` that have to be filtered anew. Reads every block there to be sure."""
        return self._stream(pubend).check(base, upto)

    def rebuild(
        self, pubend: str, base: Tick, upto: Tick, match: Callable[[Tick, Tick], Filtered]
    ) -> list[Range]:
        """Fill in what is unknown of `(base, upto]`, and return it: `match` filters a range anew, with the
        selectors in force then. A caller that has to wait for the events calls `append` when it has them.
        """
        ranges = self.unknown(pubend, base, upto)
        for start, stop in ranges:
            self.append(pubend, start, stop, *match(start, stop))
        return ranges

    def chop(self, pubend: str, upto: Tick) -> None:
        """Everything at or below `upto` is released: let go of as much of it as fills whole blocks.

        A crash may bring some of it back, which does no harm.
        """
        self._stream(pubend).chop(upto)

    def _stream(self, pubend: str) -> FilteredStream:
        stream = self._streams.get(pubend)
        if stream is None:
            log = BlockLog(self._volume, _PREFIX + pubend, partial(self._forget, pubend))
            stream = self._streams[pubend] = FilteredStream(log, self._cache, self._group_bits)
        return stream

    def _forget(self, pubend: str) -> None:
        """The volume gave up what was appended last: go on from what it has."""
        self._streams.pop(pubend, None)
