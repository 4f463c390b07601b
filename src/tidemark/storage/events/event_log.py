"""EventLog: the events of one pubend, each logged once, and what must be remembered of them.

An event log uses three log streams of a volume: the batches; the marks, of which the last counts; and
snapshots of the publishers, of which the last counts together with the batches after it. Everything becomes
durable with the volume's next sync; only after that may events be acknowledged and silence be advertised. The
event log promises:
- Ticks only go up, also after a crash and under a clock that has gone back: beyond what was logged, and
  beyond the lease, up to which silence may have been advertised.
- A batch that was synced is read back row for row until it is lost on purpose, or else its ticks are reported
  as lost: those between the records before and after the damage, no more and no fewer.
- The oldest batches whose events have all expired can be let go without being lost: they read as silence.
- The last event of a publisher is remembered as long as the batches are, and after they are chopped; so is
  the last move of a publisher.

What a crash may lose: what was appended, leased or lost on purpose since the last sync. Publishers have no
acknowledgement of it and send it again, silence was not advertised beyond the lease that is on disk, and
ticks that are lost on purpose are lost a little later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.validity import expires_at
from tidemark.message.publisher_names import PublisherMove
from tidemark.storage.events.publishers import LastPublished, Publishers, decode_publishers
from tidemark.storage.events.record import (
    Marks,
    MovedPublisher,
    decode_events,
    decode_marks,
    decode_moved,
    encode_events,
    encode_marks,
    encode_moved,
    encode_resume,
)
from tidemark.storage.log.stream import Undo
from tidemark.storage.log.volume import READ_BYTES, LogRecord, LogVolume
from tidemark.ticks.ranges import RangeSet
from tidemark.ticks.tick import TICK_MIN, Range, Tick

#: A snapshot of the publishers is written after so many batches or bytes; recovery reads the batches after
#: it.
SNAPSHOT_EVERY_RECORDS = 4_096
SNAPSHOT_EVERY_BYTES = 8 << 20
#: A larger snapshot waits until the log has grown by so many times its bytes, so that snapshots, of which two
#: copies are written, stay a small part of the log. Batches that it would let go wait for it.
SNAPSHOT_SHARE = 16
SNAPSHOT_SMALL_BYTES = 1 << 10
#: How many records of marks are kept before the older ones are chopped.
_MARKS_KEPT = 64
#: A mark or snapshot that is so many segments old is written again, because it keeps its segment on the disk.
_SEGMENTS_BEHIND_MAX = 4


@dataclass(frozen=True, slots=True)
class EventLogState:
    """What the log knows of its pubend."""

    #: the tick of the last event logged, or a later one if events after it may have been lost
    last_tick: Tick
    #: silence may have been advertised up to this tick
    lease: Tick
    #: ticks up to this one are L on purpose
    lost: Tick
    #: ticks beyond `lost` up to this one had events that have all expired
    expired: Tick
    #: the last event of each publisher
    publishers: dict[str, LastPublished]
    #: ticks beyond `lost` that are L because the disk lost them
    damage: tuple[Range, ...]
    #: the last move of each publisher that ever moved
    moves: dict[str, PublisherMove]

    @property
    def floor(self) -> Tick:
        """The first tick that is given out after recovery must be above this one."""
        return max(self.last_tick, self.lease, self.lost)


@dataclass(frozen=True, slots=True)
class EventsRead:
    """What the log knows of `(base, upto]`: `batches` has its events, `lost` is L, all else is silence."""

    batches: list[EventBatch]
    upto: Tick
    lost: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Expired:
    """Every batch up to `upto` has been let go; the next one expires at `due`, or never if that is None."""

    upto: Tick
    due: int | None


class EventLog:
    """The log of one pubend. `TICK_MIN` stands for no tick at all."""

    def __init__(self, volume: LogVolume, pubend: str, *, now: Tick) -> None:
        """Recover the pubend's log from the volume, or begin one.

        `now` is the pubend's clock. It matters only after damage: if the end of the log or the last lease is
        lost, everything up to `now` may have been logged or advertised. That is logged too, with the next
        sync; after a crash before that sync the next recovery finds the same, at a later `now`.
        """
        self._volume = volume
        self._events = f"events/{pubend}"
        self._marks = f"marks/{pubend}"
        self._snapshots = f"publishers/{pubend}"
        self._last_tick = self._lease = self._lost = self._expired = TICK_MIN
        self._publishers = Publishers()
        #: the last snapshot has all publishers of the batches up to this index; bytes of the batches after it
        self._covered = 0
        self._uncovered_bytes = 0
        #: ticks of damaged batches, and how many reports of damage by the volume they take into account
        self._damage = RangeSet()
        self._reports = -1
        self._recover(now)
        #: events get ticks above this one, since an earlier run may have advertised silence up to it
        self._floor = self.state.floor

    @property
    def state(self) -> EventLogState:
        """What the log knows now."""
        self._look_for_damage()
        damage = tuple(self._damage.parts(self._lost, max(self._last_tick, self._lost)))
        publishers = self._publishers.as_dict()
        return EventLogState(
            self._last_tick,
            self._lease,
            self._lost,
            self._expired,
            publishers,
            damage,
            self._publishers.moves(),
        )

    @property
    def lost(self) -> Tick:
        """Ticks up to this one are L on purpose."""
        return self._lost

    def sizes(self) -> tuple[tuple[Tick, int], ...]:
        """Last tick and bytes of every record that was not let go, as of the last sync, in order."""
        return tuple(each for each in self._volume.sizes(self._events) if each[0] > self._let_go)

    @property
    def _let_go(self) -> Tick:
        """Nothing up to this tick is read any more: it is L, or expired and therefore silence."""
        return max(self._lost, self._expired)

    def published(self, publisher: str) -> LastPublished | None:
        """Returns the publisher's last event; None if the publisher is not remembered."""
        return self._publishers.get(publisher)

    def append(self, batch: EventBatch, publisher: str, sequence: int) -> None:
        """Log a batch with its ticks filled; its first event has the publisher's number `sequence`.

        The bytes of the batch must not change any more. A publisher without a name is not remembered.
        """
        first, last = int(batch.ticks[0]), int(batch.ticks[-1])
        assert first > max(self._last_tick, self._floor, self._lost)
        assert last - first >= batch.count - 1
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
        if far and self._is_snapshot_paid:
            self._write_snapshot()

    def move(self, publisher: str, last: LastPublished, move: PublisherMove) -> None:
        """Log that a publisher left for another pubend or came to this one, with its last event so far.

        There are two records of it: losing one of them must not make an event appear twice.
        """
        forget = self._publishers.move(publisher, last, move)
        pieces = encode_moved(MovedPublisher(publisher, last.sequence, last.tick, move))
        self._volume.append(self._events, pieces, self._last_tick, forget)
        self._volume.append(self._events, pieces, self._last_tick)

    def lease(self, upto: Tick) -> None:
        """Promise that no later event gets a tick up to this one.

        Sync before advertising silence up to it.
        """
        if upto > self._lease:
            self._write_marks(lease=upto)
        behind = self._volume.segments_behind
        if behind(self._snapshots) > _SEGMENTS_BEHIND_MAX:
            self._write_snapshot()
        if behind(self._events) > _SEGMENTS_BEHIND_MAX:
            self.free()

    def lose(self, upto: Tick) -> None:
        """Lose the ticks up to this one on purpose: they are L for ever.

        A lower tick than before is ignored. Batches that the last snapshot of the publishers does not cover
        keep their place on the disk until there is another one.
        """
        if upto <= self._lost:
            return
        self._let_go_upto(self._last_below(upto), lost=upto)

    def expire(self, now: Tick, upto: Tick, bytes_max: int | None = READ_BYTES) -> Expired:
        """Let the oldest batches go whose events have all expired at `now`: they are silence from then on.

        No batch beyond `upto` is let go, and none beyond damage, which is L. At most about `bytes_max` are
        looked at: where there is more, the answer is due at once.
        """
        start = self._let_go
        first, last = self._indexes(start, upto)
        last = min(last, self._volume.after_mark(self._events, upto) - 1)
        records = self._volume.read_some(self._events, first, last, bytes_max=bytes_max).records
        self._look_for_damage()
        damage = self._damage.parts(start, max(start, upto))
        whole = damage[0][0] if damage else upto
        due: int | None = now
        expired: LogRecord | None = None
        for record in records:
            if record.mark > whole:
                due = None  # whatever is there, there is damage before it or in it
                break
            events = decode_events(record.payload, record.mark)
            due = expires_at(events.batch) if events is not None else None
            if events is None and decode_moved(record.payload) is not None:
                due = now  # there is no event in it
            if due is None or due > now:
                break
            expired = record
        if expired is not None:
            self._let_go_upto(expired.index, expired=expired.mark)
        return Expired(self._let_go, due)

    def _let_go_upto(self, last: int, lost: Tick | None = None, expired: Tick | None = None) -> None:
        """Note what is let go; remove the records up to the index `last` that a snapshot covers."""
        if last > self._covered and self._is_snapshot_paid:
            self._write_snapshot()
        self._write_marks(lost=lost, expired=expired)
        self._volume.chop(self._events, min(last, self._covered))

    def free(self) -> None:
        """Give back the place of all batches that were let go, whatever a snapshot costs."""
        last = self._last_below(self._let_go)
        if last > max(self._covered, self._volume.bounds(self._events)[0] - 1):
            self._write_snapshot()
        self._volume.chop(self._events, min(last, self._covered))

    def read(self, base: Tick, upto: Tick, bytes_max: int = READ_BYTES) -> EventsRead:
        """Returns the events of `(base, upto]`, with batches cut to exactly that range.

        If they have more than `bytes_max` bytes, the answer ends earlier, though not before the first event:
        go on from its `upto`. The caller must ask for nothing beyond its last completed sync.
        """
        start, complete = max(base, self._let_go), upto
        batches: list[EventBatch] = []
        first, last = self._indexes(start, upto)
        while first <= last and not batches:
            reading = self._volume.read_some(self._events, first, last, bytes_max=bytes_max)
            batches = list(_cut(reading.records, start, upto))
            first = reading.last + 1
        if first <= last:
            complete = self._volume.mark_upto(self._events, first - 1)
        self._look_for_damage()
        lost = RangeSet(self._damage.parts(start, max(start, complete)))
        if base < min(self._lost, complete):
            lost.add(base, min(self._lost, complete))
        return EventsRead(batches, complete, tuple(lost))

    def _last_below(self, upto: Tick) -> int:
        """Returns the index of the last record whose ticks, with those of damage, are all up to this one."""
        last = self._volume.after_mark(self._events, upto) - 1
        self._look_for_damage()
        if any(upto < end for _, end in self._damage):
            # Where everything before a damaged record was let go, its ticks begin far beyond this one.
            holes = self._volume.holes(self._events)
            kept = (first - 1 for first, end in holes if self._lost_ticks(first, end)[1] > upto)
            last = min(last, next(kept, last))
        return last

    def _indexes(self, base: Tick, upto: Tick) -> tuple[int, int]:
        """Returns first and last index of the records with events in `(base, upto]`; first > last if none."""
        first = self._volume.after_mark(self._events, base)
        if upto <= base:
            return first, first - 1
        last = self._volume.after_mark(self._events, upto - 1)
        return first, min(last, self._volume.bounds(self._events)[1])

    def _note(self, publisher: str, published: LastPublished) -> Undo:
        if not publisher:
            return lambda: None
        before = self._publishers.get(publisher)
        assert before is None or before.sequence < published.sequence
        return self._publishers.note(publisher, published)

    def _write_marks(
        self, lease: Tick | None = None, lost: Tick | None = None, expired: Tick | None = None
    ) -> None:
        before = Marks(self._lease, self._lost, self._expired)

        def undo() -> None:
            self._lease, self._lost, self._expired = before

        after = Marks(
            before.lease if lease is None else lease,
            before.lost if lost is None else lost,
            before.expired if expired is None else expired,
        )
        index = self._volume.append(self._marks, encode_marks(after), self._last_tick, undo)
        self._lease, self._lost, self._expired = after
        old = index - self._volume.bounds(self._marks)[0] >= _MARKS_KEPT
        if old or self._volume.segments_behind(self._marks) > _SEGMENTS_BEHIND_MAX:
            self._volume.chop(self._marks, index - 1)

    @property
    def _is_snapshot_paid(self) -> bool:
        """Whether the log has grown enough since the last snapshot for another one."""
        size = self._publishers.encoded_bytes
        return size <= SNAPSHOT_SMALL_BYTES or self._uncovered_bytes >= SNAPSHOT_SHARE * size

    def _write_snapshot(self) -> None:
        """Log all publishers, in two records: losing one of them must not make a batch appear twice.

        If the volume has no room for them before its next flush, a later call does it.
        """
        if not self._volume.has_room(2 * self._publishers.encoded_bytes):
            return
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
            self._lease, self._lost, self._expired = decode_marks(record.payload)
        for record in self._newest(self._snapshots):
            self._covered, self._publishers = decode_publishers(bytes(record.payload))
        if volume.chopped_mark(self._events) > self._let_go:
            # The marks that said why these were let go are damaged: they may have been L.
            self._lost = volume.chopped_mark(self._events)
        self._replay()
        streams = self._events, self._marks, self._snapshots
        self._last_tick = max(volume.last_mark(stream) for stream in streams)
        if self._ends_in_a_hole(self._marks):
            self._write_marks(lease=max(self._lease, now))
        if self._ends_in_a_hole(self._events):
            self._last_tick = max(self._last_tick, self._lease, now)
            volume.append(self._events, encode_resume(), self._last_tick)

    def _newest(self, stream: str) -> list[LogRecord]:
        """Returns the last record of the stream that can be read, in a list.

        An empty list if there is none.
        """
        first, last = self._volume.bounds(stream)
        for index in range(last, first - 1, -1):
            records = self._volume.read_some(stream, index, index).records
            if records:
                return records
        return []

    def _replay(self) -> None:
        """Learn the last events of publishers from the batches after the last snapshot."""
        first, last = self._volume.bounds(self._events)
        first = max(first, self._covered + 1)
        while first <= last:
            reading = self._volume.read_some(self._events, first, last)
            for record in reading.records:
                events = decode_events(record.payload, record.mark)
                if events is not None and events.publisher:
                    sequence = events.sequence + events.batch.count - 1
                    self._publishers.note(events.publisher, LastPublished(sequence, record.mark))
                if events is None and (moved := decode_moved(record.payload)) is not None:
                    published = LastPublished(moved.sequence, moved.tick)
                    self._publishers.move(moved.publisher, published, moved.move)
                self._uncovered_bytes += len(record.payload)
            first = reading.last + 1

    def _ends_in_a_hole(self, stream: str) -> bool:
        holes = self._volume.holes(stream)
        return bool(holes) and holes[-1][1] == self._volume.bounds(stream)[1]

    def _look_for_damage(self) -> None:
        """Find out which ticks the volume's damaged records had. Reading for that may find more damage."""
        while self._reports != len(self._volume.damage):
            self._reports = len(self._volume.damage)
            self._damage = RangeSet(self._lost_ticks(*hole) for hole in self._volume.holes(self._events))

    def _lost_ticks(self, first: int, last: int) -> Range:
        """Returns the ticks between the records before `first` and after `last`."""
        base = self._volume.mark_upto(self._events, first - 1)
        if last >= self._volume.bounds(self._events)[1]:
            return base, max(base, self._last_tick)
        upto = self._last_tick
        for record in self._volume.read_some(self._events, last + 1, last + 1).records:
            events = decode_events(record.payload, record.mark)
            upto = record.mark if events is None else int(events.batch.ticks[0]) - 1
        return base, max(base, upto)


def _cut(records: list[LogRecord], base: Tick, upto: Tick) -> Iterator[EventBatch]:
    """Yields the batches of `records`, cut to `(base, upto]`; a batch within the range stays as it is."""
    for record in records:
        events = decode_events(record.payload, record.mark)
        if events is None:
            continue
        batch = events.batch
        first, last = batch.ticks.searchsorted((base, upto), "right").tolist()
        if last - first == batch.count:
            yield batch
        elif first < last:
            yield batch.slice(first, last)
