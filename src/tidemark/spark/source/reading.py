"""Reading a range of a pubend: from the broker what it has, from the archive what the broker has released.

With every answer the broker says up to where it has lost history, so the border between the two is found anew
each time: nothing is read twice or left out, even if the broker releases more while it is being read. What
neither of them has comes out as a `LostRange`; the caller decides what that means.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidemark.errors import EventsLostError, TimedOutError
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Ints
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.source.archived import ReleasedHistory
from tidemark.spark.source.losses import ABSENT, DAMAGED, UNDECODABLE, released_upto
from tidemark.spark.source.partitions import TickRange
from tidemark.ticks.tick import Range
from tidemark.wire.answers import EventsReached
from tidemark.wire.frames import Fetched

#: How much of the log is read for one answer: some 10,000 events, a good size for a record batch.
FETCH_BYTES = 4 << 20
#: A broker that was restarted may take a moment until it knows its pubends as far as before.
_STALLED_SECONDS_MAX = 30.0
_STALLED_SLEEP_SECONDS = 0.05
#: So many questions are asked at most, and so many answers searched, for the end of a bounded batch.
_QUESTIONS_MAX = 64
_LOOKED_THROUGH_MAX = 64
#: The size of an ordinary event; it only decides how much is fetched to find the end of a bounded batch.
_EVENT_BYTES = 512
#: A topic that has no events.
_NO_TOPIC = "~nothing~"


class RangeFetcher(Protocol):
    """Fetches ranges from brokers; see `spark.connections`."""

    def fetch(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, *, bytes_max: int
    ) -> Fetched:
        """See Client.fetch."""

    def reach(
        self, pubend: str, base: int, upto: int, pattern: str, selector: str, events: int
    ) -> EventsReached | None:
        """Where the n-th event of `(base, upto]` lies; None if the broker is too old to say."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Any events in `(base, upto]` are neither at the broker nor in the archive, or cannot be decoded."""

    base: int
    upto: int
    #: why the reader does not get them: a text of `losses`
    why: str


class EventFilter(Protocol):
    """Chooses events as a broker would; `TopicColumnReader.chosen` is one."""

    def __call__(self, batch: EventBatch, /) -> EventBatch | None:
        """The chosen events of a batch, or None if there are none."""


class DamageFinder(Protocol):
    """Tells events that can be decoded from others; `TopicColumnReader.sound` is one."""

    def __call__(self, batch: EventBatch, /) -> tuple[EventBatch | None, Sequence[Range]]:
        """The events that can be decoded, None if none can, and the ticks of the others as ranges."""


class RangeReader:
    """Reads ranges of pubends, of which it returns the events that a topic pattern and a selector choose."""

    def __init__(
        self,
        broker: RangeFetcher,
        archive: ReleasedHistory,
        wanted: TopicSelector,
        choose: EventFilter,
        sound: DamageFinder,
    ) -> None:
        """`choose` filters events of the archive by pattern and selector, as the broker filters its own.

        What `sound` finds damaged is lost: a broker of an older version let it in.
        """
        self._broker = broker
        self._archive = archive
        self._wanted = wanted
        self._choose = choose
        self._sound = sound
        #: did what `read` has yielded last come from the archive?
        self.is_archived = False

    def read(self, part: TickRange) -> Iterator[EventBatch | LostRange]:
        """The chosen events of the range, and its lost ranges, in the order of their ticks."""
        for fetched in self._fetched(part):
            self.is_archived = False
            yield from self._filled(part.pubend, fetched)

    def read_small(self, part: TickRange, bytes_max: int) -> list[EventBatch | LostRange] | None:
        """The same, if the broker reads at most about `bytes_max` of its log for it; otherwise None."""
        fetched = self._fetch(part, part.base, bytes_max)
        if fetched.upto < part.upto or fetched.lost > part.base or fetched.damaged:
            return None
        self.is_archived = False
        return list(self._filled(part.pubend, fetched))

    def read_archived(self, part: TickRange) -> Iterator[EventBatch | LostRange]:
        """The same, from the archive alone."""
        return self._from_archive(part.pubend, part.base, part.upto, ABSENT)

    def reach(self, part: TickRange, events_max: int) -> tuple[int, int]:
        """The tick up to which the first `events_max` events of the range lie, and how many those are.

        The broker counts, as far as it has the range; what lies beyond is fetched and counted here. Where a
        selector chooses few events of a long range, this ends early, with fewer: the next batch goes on.
        """
        found, at = 0, part.base
        wanted = self._wanted
        for _ in range(_QUESTIONS_MAX):
            said = self._broker.reach(
                part.pubend, at, part.upto, wanted.pattern, wanted.selector, events_max - found
            )
            if said is None or said.upto <= at:
                break
            at, found = said.upto, found + said.events
            if found >= events_max or at >= part.upto:
                return at, found
            if not said.is_whole:
                break
        else:
            return at, found
        upto, more = self._reach_by_fetching(TickRange(part.pubend, at, part.upto), events_max - found)
        return upto, found + more

    def _reach_by_fetching(self, part: TickRange, events_max: int) -> tuple[int, int]:
        """The same, with holes of the broker's history filled from the archive."""
        found, at = 0, part.base
        # Nothing is fetched ahead: the first answer mostly has all that a small batch takes.
        bytes_max = min(events_max * _EVENT_BYTES, FETCH_BYTES)
        for _ in range(_LOOKED_THROUGH_MAX):
            fetched, bytes_max = self._fetch(part, at, bytes_max), FETCH_BYTES
            for ticks in self._ticks(part.pubend, fetched):
                if found + len(ticks) >= events_max:
                    return int(ticks[events_max - found - 1]), events_max
                found += len(ticks)
            at = fetched.upto
            if at >= part.upto:
                break
        return at, found

    def _ticks(self, pubend: str, fetched: Fetched) -> Iterator[Ints]:
        """The ticks of the events of one answer, in order; whether they can be decoded does not matter."""
        if fetched.lost <= fetched.base and not fetched.damaged:
            if fetched.batch is not None:
                yield fetched.batch.ticks
            return
        for item in self._filled(pubend, fetched):
            if not isinstance(item, LostRange):
                yield item.ticks

    def probe(self, pubend: str, at: int, upto: int) -> int:
        """A `partitions.Probe`: a fetch that chooses no event, and so ends at the first record it meets."""
        return self._broker.fetch(pubend, at, upto, _NO_TOPIC, "", bytes_max=1).upto

    def _fetched(self, part: TickRange) -> Iterator[Fetched]:
        """The broker's answers that tile the range; the next one is on its way while one is worked on."""
        fetched = self._fetch(part, part.base)
        if fetched.upto >= part.upto:
            # A small micro-batch is one answer; to start a thread would take as long as to read it.
            yield fetched
            return
        with ThreadPoolExecutor(1) as ahead:
            while fetched.upto < part.upto:
                coming = ahead.submit(self._fetch, part, fetched.upto)
                yield fetched
                fetched = coming.result()
            yield fetched

    def _fetch(self, part: TickRange, at: int, bytes_max: int = FETCH_BYTES) -> Fetched:
        deadline = time.monotonic() + _STALLED_SECONDS_MAX
        while True:
            fetched = self._broker.fetch(
                part.pubend, at, part.upto, self._wanted.pattern, self._wanted.selector, bytes_max=bytes_max
            )
            if fetched.upto > at or at >= part.upto:
                return fetched
            if time.monotonic() >= deadline:
                raise TimedOutError(
                    f"the broker knows the pubend {part.pubend!r} up to {at} only, not up to {part.upto} as "
                    "before: it has lost its disk, or it is another broker"
                )
            time.sleep(_STALLED_SLEEP_SECONDS)

    def _filled(self, pubend: str, fetched: Fetched) -> Iterator[EventBatch | LostRange]:
        """The events of one answer, with its holes filled from the archive as far as that has them."""
        batch, first = fetched.batch, 0
        holes = [(fetched.base, min(fetched.lost, fetched.upto), released_upto(fetched.lost))]
        holes += [(base, upto, DAMAGED) for base, upto in fetched.damaged]
        for base, upto, why in sorted(each for each in holes if each[0] < each[1]):
            if batch is not None:
                last = int(np.searchsorted(batch.ticks, base, side="right"))
                if first < last:
                    yield from self._told(batch.slice(first, last))
                first = last
            yield from self._from_archive(pubend, base, upto, why)
            self.is_archived = False
        if batch is not None and first < batch.count:
            yield from self._told(batch if first == 0 else batch.slice(first, batch.count))

    def _told(self, batch: EventBatch) -> Iterator[EventBatch | LostRange]:
        """The events of a batch, with lost ranges in the place of those that cannot be decoded."""
        kept, damaged = self._sound(batch)
        first = 0
        for base, upto in damaged:
            last = int(np.searchsorted(kept.ticks, base, side="right")) if kept is not None else 0
            if kept is not None and first < last:
                yield kept.slice(first, last)
            first = last
            yield LostRange(base, upto, UNDECODABLE)
        if kept is not None and first < kept.count:
            yield kept if first == 0 else kept.slice(first, kept.count)

    def _from_archive(self, pubend: str, base: int, upto: int, why: str) -> Iterator[EventBatch | LostRange]:
        """What the archive has of a range that is read from it, for the reason `why`, and what it lacks."""
        self.is_archived = True
        at = base
        for gap in [*self._archive.gaps(pubend, base, upto), (upto, upto)]:
            if at < gap[0]:
                yield from self._archived(pubend, at, gap[0])
            if gap[0] < gap[1]:
                yield LostRange(*gap, why)
            at = gap[1]

    def _archived(self, pubend: str, base: int, upto: int) -> Iterator[EventBatch | LostRange]:
        for batch in self._archive.read(pubend, base, upto, self._wanted.pattern):
            for item in self._told(batch):
                chosen = item if isinstance(item, LostRange) else self._choose(item)
                if chosen is not None:
                    yield chosen
        if self._archive.gaps(pubend, base, upto):
            raise EventsLostError(
                "the archive has let some of them go while it was being read; read again",
                pubend=pubend,
                base=base,
                upto=upto,
            )
