"""Catchup: the private stream of one subscriber that is behind the constream (DSN'03 4.1).

The PFS says which ticks matched, so nothing is matched again. The events are taken from the window or asked
for, and what arrives is held until everything before it has arrived. Where the PFS does not know, every event
of the range is asked for and matched. The archive may still have what is L here: that is recalled before it
is told as a gap. A catchup stream ends where it reaches the constream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tidemark.broker.streams.window import Cuts, rows_within
from tidemark.message.batches.batch import EventBatch, concatenate
from tidemark.ticks import NO_TICKS, TICK_MAX, TICK_MIN, Range, RangeSet

Ticks = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: Matches read from the PFS at once; while few subscribers catch up more, up to READ_EVENTS_MAX, so that all
#: of them together have read READ_EVENTS_ALL_MAX at the most.
CHUNK_EVENTS_MAX = 4_096
READ_EVENTS_MAX = 4 * CHUNK_EVENTS_MAX
READ_EVENTS_ALL_MAX = 1 << 21
#: Bytes of the events asked for at once, about, judged by the events that came before.
ASK_BYTES = 1 << 20
ASK_EVENTS_MIN = 16
#: Ranges asked for at once; with more, neighbouring ticks are asked for with what lies between them.
ASK_RANGES_MAX = 8
#: What is read from a log here is cut only where ticks are further apart than this part of all that is asked
#: for, and than so many ticks: a read costs more than events that nobody wants, and subscribers should ask
#: for the same ranges.
LOG_STEP_PART = 16
LOG_STEP_TICKS_MIN = 1 << 14
#: A part that has so many bytes is told by itself, and not together with what follows it.
ALONE_BYTES = 32 << 10
#: Ticks asked for at once where every event has to be matched again: at first, at the least and at the most.
SPAN_TICKS = 1_000_000
SPAN_TICKS_MIN = 1_000
SPAN_TICKS_MAX = 3_600_000_000


class Catchup:
    """The catchup stream of one subscriber at one pubend; it has been told up to `position`."""

    def __init__(self, position: int) -> None:
        self.position = position
        #: the PFS was asked for what lies beyond this tick; None once it has answered
        self.reads_from: int | None = None
        #: how far the constream was then: the PFS will never know what it does not answer up to here
        self.reads_upto = TICK_MIN
        #: events have come, to be matched again or from the archive, the first of a topic not known here
        self.waits_for_topic = False
        #: the PFS has answered up to here, with matches or with not knowing
        self._scanned = position
        #: Matched ticks up to `scanned`; those before `_next` have been told. Others may have the same
        #: array, so it is never changed.
        self._ticks: Ticks = NO_TICKS
        self._next = 0
        #: have[i]: the event of ticks[i] is in `_held`, or was told
        self._have: Mask = np.zeros(0, np.bool_)
        #: the place of the first of `_ticks` from `_next` on whose event has not arrived, or their number;
        #: None after a change, until somebody asks
        self._absent: int | None = 0
        self._held: list[EventBatch] = []
        #: some of `_ticks` may not have matched: their events are matched again when they have arrived
        self._is_exact = True
        #: ranges of `(position, scanned]` whose events have to be matched again
        self._unfiltered = RangeSet()
        #: ranges of it that are L
        self._gone = RangeSet()
        #: ranges of it that are L for good: the archive does not have them either
        self._given_up = RangeSet()
        #: bytes of an event, judged by the last batch
        self._average = ASK_BYTES // CHUNK_EVENTS_MAX
        #: ticks to ask for at once where events have to be matched again
        self._span = SPAN_TICKS
        #: everything that is missing up to here was asked for, and will be answered
        self._asked = position

    @property
    def needs_read(self) -> bool:
        """Whether everything that the PFS answered has been told, so that it has to be asked for more."""
        return self.reads_from is None and self.position >= self._scanned

    def matched(self, upto: int, ticks: Ticks, unknown: Range | None, *, is_exact: bool = True) -> None:
        """The PFS answers: up to `upto` exactly `ticks` matched; `unknown` has to be matched again.

        Unless `is_exact`, some of `ticks` may not have matched.
        """
        self.reads_from = None
        self._is_exact = self._is_exact and is_exact
        if upto > self._scanned:
            is_new = not len(ticks) or ticks[0] > self._scanned
            self._insert(ticks if is_new else ticks[ticks > self._scanned])
            self._scanned = upto
        if unknown is not None and unknown[1] > self._scanned:
            self._unfiltered.add(max(unknown[0], self._scanned), unknown[1])
            self._scanned = unknown[1]

    def span(self) -> Range | None:
        """Return the range of what to ask for next; None if nothing is missing."""
        if self._unfiltered:
            missing = self.missing()
            return (missing[0][0], missing[-1][1]) if missing else None
        first, count = self._first_absent(), len(self._ticks)
        if first == count:
            return None
        last = min(first + self._events_at_once, count) - 1
        return self._ticks.item(first) - 1, self._ticks.item(last)

    def missing(self, *, log_upto: int | None = None) -> list[Range]:
        """Return what to ask for next, in few ranges.

        If a log here is read for it, `log_upto` is the last tick that may be asked for. There are fewer
        ranges then, and they begin and end where those of others do that want about the same.
        """
        lacking = self._lacking()[: self._events_at_once]
        if not self._unfiltered and log_upto is not None:
            return _on_grid(_ranges(lacking, LOG_STEP_PART), log_upto)
        if not self._unfiltered:
            return _ranges(lacking)
        base, upto = next(iter(self._unfiltered))
        before = lacking[lacking <= base]
        return _ranges(before) if len(before) else [(base, min(upto, base + self._span))]

    @property
    def _events_at_once(self) -> int:
        """How many events are asked for at once."""
        return max(ASK_EVENTS_MIN, ASK_BYTES // self._average)

    def _lacking(self) -> Ticks:
        """The matched ticks whose events have not arrived."""
        return self._ticks[self._next :][~self._have[self._next :]]

    def _first_absent(self) -> int:
        """Return the place of the first matched tick whose event is missing; their number if none is."""
        if self._absent is None:
            have = self._have[self._next :]
            at = int(have.argmin()) if len(have) else 0
            self._absent = len(self._ticks) if not len(have) or have[at] else self._next + at
        return self._absent

    def is_worth_asking(self, upto: int) -> bool:
        """Return whether to ask for what is missing up to a tick, and note that it is asked for.

        Answers come in small parts. If each of them asked for as much again, a log would be read, record by
        record, many times over: half of what may be under way is asked for at once.
        """
        under_way = int(np.searchsorted(self._lacking(), self._asked, side="right"))
        is_new = bool(self._unfiltered) or upto > self._asked
        if not is_new or 2 * under_way > self._events_at_once:
            return False
        self._asked = max(self._asked, upto)
        return True

    def ask_again(self) -> None:
        """What was asked for long ago may have come another way, and is gone: ask for what is missing."""
        self._asked = self.position

    def arrived(
        self,
        base: int,
        upto: int,
        cuts: Cuts | None,
        damaged: Sequence[Range],
        chosen: Callable[[EventBatch], Mask],
        readable: int,
    ) -> None:
        """Events of `(base, upto]` have arrived; a matched tick that is not among them has expired meanwhile.

        `chosen` matches events again where the PFS does not know, or not exactly. That needs their schemas,
        which are known up to the tick `readable`.
        """
        base = max(base, self.position)
        if upto <= base:
            return
        for first, last in damaged:
            self._lose(first, last)
        for first, last in self._unfiltered.parts(base, upto):
            if readable > first:
                self._filter(first, min(last, readable), cuts, chosen)
            self.waits_for_topic = self.waits_for_topic or readable < last
        if not self._is_exact and readable < upto:
            upto = self._put_off(max(base, readable), upto)
        lo = int(self._ticks.searchsorted(base, "right"))
        hi = int(self._ticks.searchsorted(upto, "right"))
        # What is not told is held, so mostly nothing is, and the arrays need not be looked at.
        holds = bool(self._held)
        if self._is_exact and cuts is not None and lo < hi and not (holds and self._have[lo:hi].any()):
            # The usual case, which costs little: all of it is new, and others want the same rows.
            part = cuts.at(self._ticks, lo, hi)
            if part is not None:
                self._hold(part)
                self._have[lo:hi] = True
                is_next = self._absent == lo and not (holds and self._have[hi : hi + 1].any())
                self._absent = hi if is_next else None
                return
        lacking = np.flatnonzero(~self._have[lo:hi]) + lo
        if not len(lacking):
            return
        found = np.zeros(len(lacking), np.bool_)
        if cuts is not None:
            wanted, ticks = self._ticks[lacking], cuts.ticks
            rows = np.minimum(np.searchsorted(ticks, wanted), len(ticks) - 1)
            found = ticks[rows] == wanted
            if not self._is_exact and found.any():
                found[found] = chosen(cuts.take(rows[found]))
            if found.any():
                self._hold(cuts.take(rows[found]))
                self._have[lacking[found]] = True
                self._absent = None
        if not found.all():
            keep = np.ones(len(self._ticks), np.bool_)
            keep[lacking[~found]] = False
            self._keep(keep)

    def _put_off(self, readable: int, upto: int) -> int:
        """What came of `(readable, upto]` cannot be matched yet: ask for it again. Return `readable`."""
        lo, hi = np.searchsorted(self._ticks, (readable, upto), side="right").tolist()
        if not self._have[lo:hi].all():
            self.waits_for_topic = True
            self._asked = min(self._asked, readable)
        return readable

    def _filter(self, base: int, upto: int, cuts: Cuts | None, chosen: Callable[[EventBatch], Mask]) -> None:
        """Match the events of `(base, upto]` again."""
        self._unfiltered.remove(base, upto)
        count = 0
        if cuts is not None:
            rows = np.flatnonzero((cuts.ticks > base) & (cuts.ticks <= upto))
            count = len(rows)
            if count:
                part = cuts.take(rows)
                found = np.flatnonzero(chosen(part))
                if len(found):
                    part = part if len(found) == part.count else part.take(found)
                    self._hold(part)
                    self._insert(part.ticks, have=True)
        # Ask for more at once where there is little, for less where there is much.
        factor = 4 if count < CHUNK_EVENTS_MAX // 4 else 0.25 if count > CHUNK_EVENTS_MAX else 1
        self._span = int(min(max(self._span * factor, SPAN_TICKS_MIN), SPAN_TICKS_MAX))

    def recalled(
        self, base: int, upto: int, batch: EventBatch | None, gone: Sequence[Range], *, for_good: bool
    ) -> None:
        """Take everything there is for the subscriber in `(base, upto]`, in place of what was known of it.

        What is `gone` is L, and with `for_good` the archive does not have it either. What the subscriber has
        been told meanwhile - silence, or events that came another way - is left out.
        """
        assert base <= self._scanned
        base = max(base, self.position)
        if upto <= base:
            return
        batch = rows_within(batch, base, upto)
        self._held = [
            part
            for each in self._held
            for part in (rows_within(each, TICK_MIN, base), rows_within(each, upto, TICK_MAX))
            if part is not None
        ]
        self._keep((self._ticks <= base) | (self._ticks > upto))
        for ranges in (self._unfiltered, self._gone):
            ranges.remove(base, upto)
        self._scanned = max(self._scanned, upto)
        for first, last in RangeSet(gone).parts(base, upto):
            self._gone.add(first, last)
            if for_good:
                self._given_up.add(first, last)
        if batch is not None:
            self._hold(batch)
            self._insert(batch.ticks, have=True)

    def ready(self, credit: int) -> tuple[int, EventBatch | None] | None:
        """Return what can be told next, as a tick and the events up to it, if any; None if nothing can."""
        absent = self._first_absent() if credit > 0 else self._next
        upto = self._scanned if absent == len(self._ticks) else self._ticks.item(absent) - 1
        if upto <= self.position:
            return None  # as mostly, so it is found before anything else is looked at
        for ranges in (self._unfiltered, self._gone):
            if ranges:
                upto = min(upto, next(iter(ranges))[0])
        if upto <= self.position:
            return None
        held = self._held
        if len(held) == 1 and held[0].ticks[-1] <= upto:
            self.position, self._held = upto, []
            self._pass(upto)
            return upto, held[0]
        # Parts of what was asked for may have arrived in any order.
        due = sorted(self._split(upto), key=_first_tick)
        if len(due) > 1 and len(due[0].data) >= ALONE_BYTES and due[0].ticks[-1] < due[1].ticks[0]:
            # By itself: others may be told the same batch, and joined to another it would be a copy.
            upto, due, self._held = int(due[0].ticks[-1]), due[:1], due[1:] + self._held
        self.position = upto
        self._pass(upto)
        if not due:
            return upto, None
        whole = concatenate(due)
        if len(due) > 1 and (np.diff(whole.ticks) < 0).any():
            whole = whole.take(np.argsort(whole.ticks, kind="stable"))
        return upto, whole

    def gap(self, lost: int) -> int | None:
        """Return the end of the gap that comes next; None if something else does. All up to `lost` is L."""
        if lost > self.position:
            self._lose(self.position, lost)
        if not self._gone:
            return None
        base, upto = next(iter(self._gone))
        if base > self.position:
            return None
        given_up = self._given_up.parts(self.position, upto)
        if not given_up:
            return upto
        return given_up[0][1] if self.is_given_up else given_up[0][0]

    @property
    def is_given_up(self) -> bool:
        """Whether what comes next is L for good."""
        return self._given_up.contains(self.position + 1)

    def skip(self, upto: int) -> None:
        """The subscriber has been told of a gap up to `upto`."""
        self.position = max(self.position, upto)
        self._scanned = max(self._scanned, upto)
        for ranges in (self._gone, self._given_up, self._unfiltered):
            ranges.remove_upto(upto)
        self._pass(upto)
        # A hostile answer may have events where it says that they are gone: they are not told after the gap.
        beyond = (rows_within(each, upto, TICK_MAX) for each in self._held)
        self._held = [each for each in beyond if each is not None]

    def _lose(self, base: int, upto: int) -> None:
        """`(base, upto]` is L: it becomes a gap where something matched, or may have, and is not held."""
        base, upto = max(base, self.position), min(upto, self._scanned)
        if upto <= base:
            return
        inside = (self._ticks > base) & (self._ticks <= upto)
        lacking = self._ticks[inside & ~self._have]
        holes = RangeSet(self._unfiltered.parts(base, upto))
        for tick in lacking.tolist():
            holes.add(tick - 1, tick)
        self._unfiltered.remove(base, upto)
        self._keep(~inside | self._have)
        held = self._ticks[(self._ticks > base) & (self._ticks <= upto)]
        for first, last in holes:
            # One gap covers all holes up to the next event that is held.
            nexts = held[held > first]
            self._gone.add(first, max(last, min(upto, int(nexts[0]) - 1 if len(nexts) else upto)))

    def _insert(self, ticks: Ticks, *, have: bool = False) -> None:
        if not len(ticks):
            return
        self._forget_told()
        self._absent = None
        flags = np.full(len(ticks), have)
        if not len(self._ticks):
            self._ticks, self._have = ticks, flags
            return
        if ticks[0] > self._ticks[-1]:
            self._ticks = np.concatenate((self._ticks, ticks))
            self._have = np.concatenate((self._have, flags))
            return
        places = np.searchsorted(self._ticks, ticks)
        self._have = np.insert(self._have, places, flags)
        self._ticks = np.insert(self._ticks, places, ticks)

    def _hold(self, batch: EventBatch) -> None:
        self._held.append(batch)
        self._average = max(1, len(batch.body) // batch.count)

    def _pass(self, upto: int) -> None:
        """The subscriber has been told up to this tick."""
        self._next = int(self._ticks.searchsorted(upto, "right"))
        if self._absent is not None and self._absent < self._next:
            self._absent = None

    def _forget_told(self) -> None:
        """Keep only the ticks that have not been told."""
        if self._next:
            self._ticks, self._have = self._ticks[self._next :], self._have[self._next :]
            self._next, self._absent = 0, None

    def _keep(self, rows: Mask) -> None:
        """Keep these of the ticks, and of those only the ones that have not been told."""
        self._ticks, self._have, self._absent = self._ticks[rows], self._have[rows], None
        self._pass(self.position)
        self._forget_told()

    def _split(self, upto: int) -> Iterator[EventBatch]:
        """Yield the held rows up to `upto`, and hold them no longer."""
        later: list[EventBatch] = []
        for batch in self._held:
            if batch.ticks[0] > upto:
                later.append(batch)
            elif batch.ticks[-1] <= upto:
                yield batch
            else:
                at = int(np.searchsorted(batch.ticks, upto, side="right"))
                yield batch.slice(0, at)
                later.append(batch.slice(at, batch.count))
        self._held = later


def _first_tick(batch: EventBatch) -> int:
    return int(batch.ticks[0])


def _ranges(ticks: Ticks, part: int | None = None) -> list[Range]:
    """Return at most ASK_RANGES_MAX ranges that hold these ticks, cut where the ticks are furthest apart.

    With `part`, it is cut only where they are further apart than this part of them all, and than
    LOG_STEP_TICKS_MIN.
    """
    if not len(ticks):
        return []
    steps = ticks[1:] - ticks[:-1]
    least = 1 if part is None else max(LOG_STEP_TICKS_MIN, int(ticks[-1] - ticks[0]) // part)
    widest = np.flatnonzero(steps > least)
    if len(widest) >= ASK_RANGES_MAX:
        furthest = np.argpartition(steps[widest], 1 - ASK_RANGES_MAX)[1 - ASK_RANGES_MAX :]
        widest = np.sort(widest[furthest])
    cuts = widest + 1
    firsts = ticks[np.concatenate(([0], cuts))]
    lasts = ticks[np.concatenate((cuts - 1, [len(ticks) - 1]))]
    return list(zip((firsts - 1).tolist(), lasts.tolist(), strict=True))


def _on_grid(ranges: list[Range], upto_max: int) -> list[Range]:
    """Return ranges that hold these and begin and end at round ticks, but end at `upto_max` at the latest.

    Subscribers of different events would else ask for ranges that differ by a few ticks, and what is left of
    one beside the other is a read of its own. The ranges must be apart as LOG_STEP_PART says.
    """
    found: list[Range] = []
    for base, upto in ranges:
        least = max(LOG_STEP_TICKS_MIN, (upto - base) // LOG_STEP_PART) // 2
        step = 1 << (least.bit_length() - 1)
        found.append((base // step * step, max(upto, min(-(-upto // step) * step, upto_max))))
    return found
