"""PersistentFiltering: the PFS of one subscriber hosting broker (DSN'03 4.2).

The PFS has for every pubend which ticks matched which durable subscriber, so that the events of a subscriber
that returns need not be matched again. It promises:
- Reads are precise: a read reports exactly the ticks that matched, in a range that it names. With
  `group_bits` they are not: subscribers whose numbers differ only in the lowest bits share what is stored,
  and a read may also report ticks that matched another subscriber of the group. That makes definitions
  shorter and sets fewer.
- What the PFS says of a tick is what matched when the tick was appended: before a change of the selector the
  old selector, after it the new one. It says nothing about a subscriber for ticks before that one was made.
  Numbers of subscribers are never used again.
- A tick is appended once: what comes again after a crash is recognised by its tick and not doubled.
- An event that matched n subscribers takes at most 8 + 16n bytes, the paper's size, and as many as its own
  length needs (at most 4, usually 1); usually about 5 altogether. Only a sync with next to nothing in it
  takes more, because the volume's header outweighs it: one event of less than five subscribers, or three of
  one each. Where that matters, sync less often.
- What a subscriber is owed is counted from what is stored, with the bytes of the events (`count`).
- Damage and other holes are unknown, never silence.

The caller appends, calls `sync`, and only then lets latest_delivered go up to what `sync` returned. When the
disk is full, everything appended since the last sync is forgotten: the caller appends it again, from `last`
on. Only one thread at a time may call anything here.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from tidemark.storage.log.volume import LogVolume
from tidemark.storage.pfs.blocklog import BlockLog
from tidemark.storage.pfs.cache import CACHE_BYTES_MAX, BlockCache
from tidemark.storage.pfs.counting import CountedMatches
from tidemark.storage.pfs.openblock import MembersOf
from tidemark.storage.pfs.reading import Missed, read_missed
from tidemark.storage.pfs.record import Ids
from tidemark.storage.pfs.stream import FilteredStream
from tidemark.ticks import Range, Tick, Ticks

#: A call reads no more blocks than this, so that other users of the disk do not wait long.
READ_BLOCKS_MAX = 256

_PREFIX = "pfs/"


class PersistentFiltering:
    """The PFS of one broker, in one log stream for each pubend."""

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
        #: pubend -> its stream; a pubend is recovered when it is first used
        self._streams: dict[str, FilteredStream] = {}

    @property
    def pubends(self) -> list[str]:
        """The pubends of which the PFS has, or had, anything."""
        return [name.removeprefix(_PREFIX) for name in self._volume.streams if name.startswith(_PREFIX)]

    def last(self, pubend: str) -> Tick | None:
        """Returns the last tick that was appended of this pubend, synced or not; None if there is none."""
        return self._stream(pubend).last

    def append(
        self, pubend: str, base: Tick, upto: Tick, ticks: Ticks, sets: Ids, lengths: Ids, members: MembersOf
    ) -> None:
        """Append that in `(base, upto]` the events at ticks[row] matched the subscribers members(sets[row]).

        lengths[row] are the bytes of the event. Ticks strictly increase. Every tick that is not listed, or is
        listed with set 0, is silence for every subscriber of that time. What is known already stays as it is,
        so the same may be appended again. If `base` is beyond the last known tick, what lies between is
        unknown. `members` is called during this call only; a number must mean the same set as long as the
        same function (or method of the same object) is given. Raises DiskFullError or DiskFailedError.
        """
        self._stream(pubend).append(base, upto, ticks, sets, lengths, members)

    def flush(self) -> dict[str, Tick]:
        """Hand everything to the log volume.

        Returns pubend -> the tick up to which its next sync makes it safe.
        """
        for stream in list(self._streams.values()):
            stream.flush()
        return {pubend: stream.last for pubend, stream in self._streams.items() if stream.last is not None}

    def sync(self) -> dict[str, Tick]:
        """Make everything appended so far durable. Returns pubend -> the tick up to which it is.

        Raises DiskFullError, and everything since the last sync is forgotten, or DiskFailedError.
        """
        upto = self.flush()
        self._volume.sync()
        return upto

    def read(self, pubend: str, subscriber: int, base: Tick, limit: int) -> Missed:
        """Returns what matched a subscriber beyond `base`, at most `limit` ticks of it."""
        return self.read_many(pubend, {subscriber: base}, limit)[subscriber]

    def read_many(self, pubend: str, bases: Mapping[int, Tick], limit: int) -> dict[int, Missed]:
        """Returns what `read` would for each of many subscribers, each from its own base, in one scan."""
        subscribers = np.fromiter(bases.keys(), np.uint32, len(bases))
        starts = np.fromiter(bases.values(), np.int64, len(bases))
        stream = self._stream(pubend)
        missed = read_missed(stream, subscribers, starts, limit, self._read_blocks_max)
        return dict(zip(bases, missed, strict=True))

    def count(self, pubend: str, bases: Mapping[int, Tick]) -> dict[int, CountedMatches] | None:
        """Returns what each subscriber is owed beyond its base, from counts that are kept from call to call.

        None if that takes more reading than one call may do: what was read counts, so call again.
        """
        return self._stream(pubend).owed.count(bases, self._read_blocks_max)

    def unknown(self, pubend: str, base: Tick, upto: Tick) -> list[Range]:
        """Returns the parts of `(base, upto]` that have to be matched again.

        Reads every block of the range.
        """
        return self._stream(pubend).check(base, upto)

    def chop(self, pubend: str, upto: Tick) -> None:
        """Everything at or below `upto` is released: remove as much of it as fills whole blocks.

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
        """The volume has taken back what was appended last: recover the stream from what it has."""
        self._streams.pop(pubend, None)
