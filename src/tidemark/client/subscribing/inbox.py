"""Inbox: what has been delivered to one subscription, and how far the application has got with it.

Deliveries and gaps of a pubend tile its ticks: each begins where the one before ended. Ticks that are
delivered a second time, after a reconnection, are dropped; ticks that are missing become a gap or an error,
never silence. Three positions move through each pubend:

    received   everything up to here has arrived
    handed     everything up to here was handed out: the checkpoint that the application stores with its data
    consumed   everything up to here was handed out, and the application came back for more

The inbox knows no clock and no socket. Its memory is bounded by the credit that the subscription grants to
the broker, which the inbox counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from tidemark.errors import WireError
from tidemark.message.batches.batch import EventBatch
from tidemark.ticks import Range
from tidemark.wire.frames import Deliver
from tidemark.wire.frames import Gap as GapFrame

#: Credit goes back to the broker in steps of this share of the window, or when the inbox is idle.
GRANT_SHARE = 2

#: The reasons of a gap; see tidemark.Gap.
RELEASED = "released"
RECONNECTED = "reconnected"
NOT_KEPT = "not kept"
DAMAGED = "damaged"


class InboxEntry:
    """A stretch `(base, upto]` of one pubend: events, a gap, or silence."""

    __slots__ = ("base", "batch", "pubend", "reason", "upto")

    def __init__(
        self, pubend: str, base: int, upto: int, batch: EventBatch | None = None, reason: str = ""
    ) -> None:
        self.pubend = pubend
        self.base = base
        self.upto = upto
        self.batch = batch
        #: why there is a gap; "" for events and silence
        self.reason = reason

    @property
    def is_silence(self) -> bool:
        """There is nothing to hand out."""
        return self.batch is None and not self.reason

    @property
    def bytes(self) -> int:
        """Bytes of the credit that this entry takes."""
        return len(self.batch.body) if self.batch is not None else 0


class InboxCursor:
    """The entry that is being handed out: its first `out` rows were handed out, its first `done` consumed."""

    __slots__ = ("before", "done", "entry", "out", "positions")

    def __init__(self, entry: InboxEntry, before: dict[str, int]) -> None:
        self.entry = entry
        #: pubend -> the tick up to which everything was handed out before this entry
        self.before = before
        #: positions[row]: the tick up to which the pubend is handed out once the row is
        self.positions: list[int] = entry.batch.ticks.tolist() if entry.batch is not None else [entry.upto]
        self.positions[-1] = entry.upto
        self.done = 0
        self.out = 0

    @property
    def is_finished(self) -> bool:
        """Every row was handed out."""
        return self.out == len(self.positions)

    def position(self, rows: int) -> int:
        """The tick up to which the pubend is handed out after the first `rows` rows."""
        return self.positions[rows - 1] if rows else self.entry.base


class Inbox:
    """Everything that was delivered to one subscription and is not consumed yet."""

    def __init__(
        self, window_bytes_max: int, token: Mapping[str, int] | None = None, *, from_oldest: bool = False
    ) -> None:
        """With `from_oldest`, what was released before the first event of a pubend is silence and no gap.

        That is what a subscriber wants that asked for the oldest event there is.
        """
        self.window_bytes_max = window_bytes_max
        self._from_oldest = from_oldest
        #: pubends of which an event was delivered
        self._with_events: set[str] = set()
        self._handed: dict[str, int] = dict(token or {})
        self._received: dict[str, int] = dict(self._handed)
        #: pubends of which something was delivered since the last (re)connection
        self._heard: set[str] = set()
        #: pubends for which the broker has named the tick at which the subscription starts
        self.started: set[str] = set()
        self._entries: deque[InboxEntry] = deque()
        #: pubend -> the last of its entries that wait
        self._last: dict[str, InboxEntry] = {}
        self.cursor: InboxCursor | None = None
        #: bytes of events that wait or are being handed out
        self._bytes = 0
        #: bytes of events that were consumed and are not granted again yet
        self._owed = 0
        #: pubend -> the tick at which the last event or gap that was handed out ended
        self._last_row: dict[str, int] = {}

    # From the broker.

    def connected(self, token: Mapping[str, int], *, repeats: bool, missed: str) -> bool:
        """A broker starts, or starts again, to deliver, for each pubend behind its tick in `token`.

        If the broker `repeats` what was not consumed, the entries that wait are dropped, since they will be
        delivered again. Where the broker starts beyond what was received there is a gap, whose reason is
        `missed`. It is handed out at once: the next delivery may be far away. Returns True if there is one.
        """
        self._heard.clear()
        if repeats:
            self._drop_waiting()
        self.started.update(token)
        has_gaps = False
        for pubend, tick in token.items():
            if pubend not in self._received:
                self._received[pubend] = self._handed[pubend] = tick
            elif tick > self._received[pubend]:
                has_gaps = True
                self._wait(InboxEntry(pubend, self._received[pubend], tick, reason=missed))
        return has_gaps

    def _drop_waiting(self) -> None:
        self._entries.clear()
        self._last.clear()
        self._received = dict(self._handed)
        self._bytes = 0
        if self.cursor is not None:
            entry = self.cursor.entry
            self._received[entry.pubend] = entry.upto
            self._bytes = entry.bytes

    @property
    def credit(self) -> int:
        """Bytes that the broker may send at once on a new connection; the rest is granted when consumed."""
        self._owed = 0
        return max(1, self.window_bytes_max - self._bytes)

    def delivered(self, frame: Deliver, *, missed: str) -> bool:
        """Take a Deliver in; True if there is something to hand out.

        `missed` is the reason of the gap if ticks are missing before it. WireError if they are missing
        although nothing was lost with a connection.
        """
        if frame.batch is not None:
            self._with_events.add(frame.pubend)
        return self._arrived(InboxEntry(frame.pubend, frame.base, frame.upto, frame.batch), missed)

    def let_go(self, frame: GapFrame, *, missed: str) -> bool:
        """Take a Gap in; True if there is something to hand out. `missed` is as with `delivered`."""
        is_before_all = self._from_oldest and frame.pubend not in self._with_events
        reason = "" if is_before_all else RELEASED
        return self._arrived(InboxEntry(frame.pubend, frame.base, frame.upto, reason=reason), missed)

    def _arrived(self, entry: InboxEntry, missed: str) -> bool:
        pubend = entry.pubend
        known = self._received.get(pubend)
        if known is None:
            self._received[pubend] = self._handed[pubend] = known = entry.base
        is_first = pubend not in self._heard
        self._heard.add(pubend)
        self.started.add(pubend)
        if entry.base > known:
            if not is_first:
                raise WireError(f"{pubend}: told up to {known}, then from {entry.base}: a frame is missing")
            self._wait(InboxEntry(pubend, known, entry.base, reason=missed))
        elif entry.base < known:
            entry = self._rest(entry, known)
        if entry.upto > entry.base:
            self._wait(entry)
        return entry.base > known or not entry.is_silence

    def _rest(self, entry: InboxEntry, known: int) -> InboxEntry:
        """The part of `entry` beyond the tick `known`. The credit of the part that is dropped is owed."""
        if entry.upto <= known:
            rest = InboxEntry(entry.pubend, known, known)
        elif entry.batch is None:
            rest = InboxEntry(entry.pubend, known, entry.upto, reason=entry.reason)
        else:
            rows = entry.batch.ticks > known
            rest = InboxEntry(entry.pubend, known, entry.upto, entry.batch.take(rows) if rows.any() else None)
        self._owed += entry.bytes - rest.bytes
        return rest

    def _wait(self, entry: InboxEntry) -> None:
        pubend = entry.pubend
        self._received[pubend] = entry.upto
        if entry.is_silence:
            before = self._last.get(pubend)
            if before is not None and before.is_silence:
                before.upto = entry.upto
                return
            if before is None and (self.cursor is None or self.cursor.entry.pubend != pubend):
                self._handed[pubend] = entry.upto
                return
        self._entries.append(entry)
        self._last[pubend] = entry
        self._bytes += entry.bytes

    # To the application.

    @property
    def next_batch(self) -> EventBatch | None:
        """The events that `take` would give next, None if it would give a gap or nothing.

        The client asks for schemas that it lacks before it takes them.
        """
        return next((entry.batch for entry in self._entries if not entry.is_silence), None)

    def leave_out(self, kept: EventBatch | None, damaged: Sequence[Range]) -> None:
        """Put gaps in the place of the events of `next_batch` in these ranges; `kept` are the others."""
        at = next(at for at, entry in enumerate(self._entries) if not entry.is_silence)
        whole = self._entries[at]
        assert whole.batch is not None
        parts: list[InboxEntry] = []
        base, first = whole.base, 0

        def events(upto: int, last: int) -> None:
            batch = kept.slice(first, last) if kept is not None and first < last else None
            if batch is not None or base < upto:
                parts.append(InboxEntry(whole.pubend, base, upto, batch))

        for gap_base, gap_upto in damaged:
            last = int(np.searchsorted(kept.ticks, gap_base, side="right")) if kept is not None else 0
            events(gap_base, last)
            parts.append(InboxEntry(whole.pubend, gap_base, gap_upto, reason=DAMAGED))
            base, first = gap_upto, last
        events(whole.upto, kept.count if kept is not None else 0)
        del self._entries[at]
        for offset, part in enumerate(parts):
            self._entries.insert(at + offset, part)
        if self._last.get(whole.pubend) is whole:
            self._last[whole.pubend] = parts[-1]
        # The credit of what is left out is owed at once.
        freed = whole.bytes - sum(part.bytes for part in parts)
        self._bytes -= freed
        self._owed += freed

    def take(self) -> InboxCursor | None:
        """The application wants more: what was handed out is consumed. The next entry; None if none waits."""
        self._retire()
        while self._entries:
            entry = self._entries.popleft()
            if self._last.get(entry.pubend) is entry:
                del self._last[entry.pubend]
            if not entry.is_silence:
                self.cursor = InboxCursor(entry, dict(self._handed))
                return self.cursor
            self._handed[entry.pubend] = entry.upto
        return None

    def finish(self) -> None:
        """What was handed out is consumed, although the application does not ask for more."""
        cursor = self.cursor
        if cursor is not None:
            cursor.done = cursor.out

    def _retire(self) -> None:
        cursor = self.cursor
        if cursor is None:
            return
        assert cursor.is_finished
        entry = cursor.entry
        self._handed[entry.pubend] = self._last_row[entry.pubend] = entry.upto
        self._bytes -= entry.bytes
        self._owed += entry.bytes
        self.cursor = None

    def grant(self, *, is_idle: bool = False) -> int:
        """Bytes to grant to the broker now; 0 while they are too few for a frame, unless `is_idle`."""
        if self._owed == 0 or (not is_idle and self._owed < self.window_bytes_max // GRANT_SHARE):
            return 0
        owed, self._owed = self._owed, 0
        return owed

    # Positions.

    def handed(self) -> dict[str, int]:
        """pubend -> tick up to which everything was handed out, what the application works on included."""
        return self._positions(self.cursor.out if self.cursor else 0)

    def consumed(self) -> dict[str, int]:
        """pubend -> tick up to which everything was handed out and the application came back for more."""
        return self._positions(self.cursor.done if self.cursor else 0)

    def quiet(self, acknowledged: dict[str, int]) -> dict[str, int]:
        """`acknowledged`, advanced over the silence right behind what was acknowledged."""
        result = dict(acknowledged)
        for pubend, position in self._handed.items():
            behind = self.cursor is None or self.cursor.entry.pubend != pubend or self.cursor.out == 0
            last = self._last_row.get(pubend)
            if behind and (last is None or acknowledged.get(pubend, last - 1) >= last):
                result[pubend] = max(position, acknowledged.get(pubend, position))
        return result

    def _positions(self, rows: int) -> dict[str, int]:
        # One step copies the positions, since the synchronous client reads them from another thread.
        positions = dict(self._handed)
        cursor = self.cursor
        if cursor is not None and rows:
            positions[cursor.entry.pubend] = cursor.position(rows)
        return positions
