"""EventLog: the events of one pubend, each logged once, and what must be remembered about them (DESIGN 6, 7).

Three log streams of a volume: the batches; the marks, of which the last counts; and snapshots of the
publishers, of which the last counts together with the batches after it. Everything waits for the volume's
next sync: acknowledge, advertise and forget only after that. It promises:
- Ticks only go up, also across a crash under a clock that has gone back: beyond what was logged, and beyond
  what was leased because silence may have been advertised up to there.
- A batch that was synced is read back row for row until it is lost on purpose, or else its ticks are reported
  as lost: those between the records before and after the damage, no more and no fewer.
- What a publisher sent last is remembered as long as the batches are, and after they are chopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidemark.message.batches.batch import EventBatch
from tidemark.storage.events.publishers import LastPublished, Publishers, decode_publishers
from tidemark.storage.events.record import (
    Marks,
    decode_events,
    decode_marks,
    encode_events,
    encode_marks,
    encode_resume,
)
from tidemark.storage.log.volume import READ_BYTES, LogRecord, LogVolume
from tidemark.ticks.ranges import RangeSet
from tidemark.ticks.tick import TICK_MIN, Range, Tick

#: Recovery reads the batches since the last snapshot: about so many of them,
SNAPSHOT_EVERY_RECORDS = 4_096
SNAPSHOT_EVERY_BYTES = 8 << 20
#: or more where there are many publishers, so that snapshots stay a small part of the log.
_BYTES_PER_PUBLISHER = 1_024
_MARKS_KEPT = 64
#: A mark or snapshot that is so many segments old is written again: it keeps its whole segment on the disk.
_SEGMENTS_BEHIND_MAX = 4


@dataclass(frozen=True, slots=True)
class EventLogState:
    """What the log knows of its pubend; after recovery, all there is to know."""

    #: of the last event logged, or beyond it where events may have been lost
    last_tick: Tick
    #: silence may have been advertised up to here
    lease: Tick
    #: ticks up to here are L on purpose
    lost: Tick
    #: the last event of each publisher
    publishers: dict[str, LastPublished]
    #: ticks beyond `lost` that are L because the disk lost them
    damage: tuple[Range, ...]

    @property
    def floor(self) -> Tick:
        """After recovery, the next tick must be above this one."""
        return max(self.last_tick, self.lease, self.lost)


@dataclass(frozen=True, slots=True)
class EventsRead:
    """What the log knows of `(base, upto]`: these events, `lost` is L, all else is silence."""

    batches: list[EventBatch]
    upto: Tick
    lost: tuple[Range, ...]


class EventLog:
    """See above. `TICK_MIN` stands for no tick at all."""

    def __init__(self, volume: LogVolume, pubend: str, *, now: Tick) -> None:
        """Recover the pubend's log from the volume, or begin one.

        `now` is the pubend's clock. It matters after damage only: where the end of the log, or the last
        lease, is lost, everything up to `now` may have been logged or advertised. That is logged too, with
        the next sync; a crash before it only means that the next recovery finds the same, at a later `now`.
        """
        self._volume = volume
        self._events = f"events/{pubend}"
        self._marks = f"marks/{pubend}"
        self._snapshots = f"publishers/{pubend}"
        self._last_tick = self._lease = self._lost = TICK_MIN
        self._publishers = Publishers()
        #: the snapshot holds all publishers of the batches up to this index, and of these bytes it does not
        self._covered = 0
        self._uncovered_bytes = 0
        #: ticks of damaged batches, as of so many reports of damage by the volume
        self._damage = RangeSet()
        self._reports = -1
        self._recover(now)
        #: no event gets a tick up to this one, which an earlier life may have advertised
        self._floor = self.state.floor

    @property
    def state(self) -> EventLogState:
        """What is known now."""
        self._look_for_damage()
        damage = tuple(self._damage.parts(self._lost, max(self._last_tick, self._lost)))
        return EventLogState(self._last_tick, self._lease, self._lost, self._publishers.as_dict(), damage)

    @property
    def lost(self) -> Tick:
        """Ticks up to here are L on purpose."""
        return self._lost

    def sizes(self) -> tuple[tuple[Tick, int], ...]:
        """Last tick and bytes of every record beyond `lost`, as of the last sync, in order."""
        return tuple(each for each in self._volume.sizes(self._events) if each[0] > self._lost)

    def published(self, publisher: str) -> LastPublished | None:
        """The publisher's last event, if it is remembered."""
        return self._publishers.get(publisher)

    def append(self, batch: EventBatch, publisher: str, sequence: int) -> None:
        """Log a batch with its ticks filled; its first event is the publisher's `sequence`-th.

        The batch's bytes must not change any more. A publisher without a name is not remembered.
        """
        first, last = int(batch.ticks[0]), int(batch.ticks[-1])
        assert first > max(self._last_tick, self._floor, self._lost)
        assert batch.count == 1 or (batch.ticks[1:] > batch.ticks[:-1]).all()
        before, size = self._last_tick, len(batch.data)

        def undo() -> None:
            forget()
            self._last_tick = before
            self._uncovered_bytes -= size

        index = self._volume.append(self._events, encode_events(batch, publisher, sequence), last, undo)
        forget = self._note(publisher, LastPublished(sequence + batch.count - 1, last))
        self._last_tick = last
        self._uncovered_bytes += size
        far = index - self._covered >= SNAPSHOT_EVERY_RECORDS or self._uncovered_bytes >= SNAPSHOT_EVERY_BYTES
        if far and self._uncovered_bytes >= _BYTES_PER_PUBLISHER * len(self._publishers):
            self._write_snapshot()

    def lease(self, upto: Tick) -> None:
        """Before silence is advertised up to this tick: no later life logs an event at or below it."""
        if upto > self._lease:
            self._write_marks(lease=upto)
        if self._volume.segments_behind(self._snapshots) > _SEGMENTS_BEHIND_MAX:
            self._write_snapshot()

    def lose(self, upto: Tick) -> None:
        """Let the ticks up to this one go: they are L for ever. Again is fine."""
        if upto <= self._lost:
            return
        last = self._last_below(upto)
        if last > self._covered:
            self._write_snapshot()
        self._write_marks(lost=upto)
        self._volume.chop(self._events, last)

    def read(self, base: Tick, upto: Tick, bytes_max: int = READ_BYTES) -> EventsRead:
        """The events of `(base, upto]`, batches cut to exactly that.

        When they have more than `bytes_max` bytes the answer ends earlier, though not before the first event:
        go on from its `upto`. The caller asks for nothing beyond its last completed sync.
        """
        start, complete = max(base, self._lost), upto
        batches: list[EventBatch] = []
        first, last = self._indexes(start, upto)
        while first <= last and not batches:
            reading = self._volume.read_some(self._events, first, last, bytes_max=bytes_max)
            batches = list(_cut(reading.records, start, upto))
            first = reading.last + 1
        if first <= last:
            complete = self._volume.mark_upto(self._events, first - 1)
        self._look_for_damage()
        lost = RangeSet(self._damage.parts(base, max(base, complete)))
        if base < min(self._lost, complete):
            lost.add(base, min(self._lost, complete))
        return EventsRead(batches, complete, tuple(lost))

    def _last_below(self, upto: Tick) -> int:
        """The last record of which all is at or below this tick; damage counts with all its ticks."""
        last = self._volume.after_mark(self._events, upto) - 1
        self._look_for_damage()
        if any(base <= upto < end for base, end in self._damage):
            holes = self._volume.holes(self._events)
            last = min(first - 1 for first, end in holes if self._lost_ticks(first, end)[1] > upto)
        return last

    def _indexes(self, base: Tick, upto: Tick) -> tuple[int, int]:
        """First and last index of the records with events in `(base, upto]`; first above last if none."""
        first = self._volume.after_mark(self._events, base)
        if upto <= base:
            return first, first - 1
        last = self._volume.after_mark(self._events, upto - 1)
        return first, min(last, self._volume.bounds(self._events)[1])

    def _note(self, publisher: str, published: LastPublished) -> Callable[[], None]:
        if not publisher:
            return lambda: None
        before = self._publishers.get(publisher)
        assert before is None or before.sequence < published.sequence
        return self._publishers.note(publisher, published)

    def _write_marks(self, lease: Tick | None = None, lost: Tick | None = None) -> None:
        before = Marks(self._lease, self._lost)

        def undo() -> None:
            self._lease, self._lost = before

        after = Marks(before.lease if lease is None else lease, before.lost if lost is None else lost)
        index = self._volume.append(self._marks, encode_marks(after), self._last_tick, undo)
        self._lease, self._lost = after
        old = index - self._volume.bounds(self._marks)[0] >= _MARKS_KEPT
        if old or self._volume.segments_behind(self._marks) > _SEGMENTS_BEHIND_MAX:
            self._volume.chop(self._marks, index - 1)

    def _write_snapshot(self) -> None:
        """Write down all publishers, twice: losing one record must not make a batch appear twice."""
        before = self._covered, self._uncovered_bytes

        def undo() -> None:
            self._covered, self._uncovered_bytes = before

        _, covered = self._volume.bounds(self._events)
        pieces = self._publishers.encode(covered)
        first = self._volume.append(self._snapshots, pieces, self._last_tick, undo)
        self._volume.append(self._snapshots, pieces, self._last_tick)
        self._volume.chop(self._snapshots, first - 1)
        self._covered, self._uncovered_bytes = covered, 0

    def _recover(self, now: Tick) -> None:
        volume = self._volume
        for record in self._newest(self._marks):
            self._lease, self._lost = decode_marks(record.payload)
        for record in self._newest(self._snapshots):
            self._covered, self._publishers = decode_publishers(bytes(record.payload))
        self._lost = max(self._lost, volume.chopped_mark(self._events))
        self._replay()
        streams = self._events, self._marks, self._snapshots
        self._last_tick = max(volume.last_mark(stream) for stream in streams)
        if self._ends_in_a_hole(self._marks):
            self._write_marks(lease=max(self._lease, now))
        if self._ends_in_a_hole(self._events):
            self._last_tick = max(self._last_tick, self._lease, now)
            volume.append(self._events, encode_resume(), self._last_tick)

    def _newest(self, stream: str) -> list[LogRecord]:
        """The last record of the stream that can be read, if there is one."""
        first, last = self._volume.bounds(stream)
        for index in range(last, first - 1, -1):
            records = self._volume.read_some(stream, index, index).records
            if records:
                return records
        return []

    def _replay(self) -> None:
        """Learn what was published since the last snapshot."""
        first, last = self._volume.bounds(self._events)
        first = max(first, self._covered + 1)
        while first <= last:
            reading = self._volume.read_some(self._events, first, last)
            for record in reading.records:
                events = decode_events(record.payload)
                if events is not None and events.publisher:
                    sequence = events.sequence + events.batch.count - 1
                    self._publishers.note(events.publisher, LastPublished(sequence, record.mark))
                self._uncovered_bytes += len(record.payload)
            first = reading.last + 1

    def _ends_in_a_hole(self, stream: str) -> bool:
        holes = self._volume.holes(stream)
        return bool(holes) and holes[-1][1] == self._volume.bounds(stream)[1]

    def _look_for_damage(self) -> None:
        """Turn the volume's missing records into lost ticks. Looking may find more damage."""
        while self._reports != len(self._volume.damage):
            self._reports = len(self._volume.damage)
            self._damage = RangeSet(self._lost_ticks(*hole) for hole in self._volume.holes(self._events))

    def _lost_ticks(self, first: int, last: int) -> Range:
        """The ticks between the records before and after these."""
        base = self._volume.mark_upto(self._events, first - 1)
        if last >= self._volume.bounds(self._events)[1]:
            return base, max(base, self._last_tick)
        upto = self._last_tick
        for record in self._volume.read_some(self._events, last + 1, last + 1).records:
            events = decode_events(record.payload)
            upto = record.mark if events is None else int(events.batch.ticks[0]) - 1
        return base, max(base, upto)


def _cut(records: list[LogRecord], base: Tick, upto: Tick) -> Iterator[EventBatch]:
    """The rows of `(base, upto]`; a batch that is all in it stays as it is."""
    for record in records:
        events = decode_events(record.payload)
        if events is None:
            continue
        batch = events.batch
        first, last = batch.ticks.searchsorted((base, upto), "right").tolist()
        if last - first == batch.count:
            yield batch
        elif first < last:
            yield batch.slice(first, last)
