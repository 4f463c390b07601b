"""Inbox: what has been delivered to one subscription, and how far the application has got with it.

Deliveries and gaps of a pubend tile its ticks: each goes on where the one before ended. What comes twice,
after a reconnect, is dropped; a hole is never passed over in silence. Three positions move through a pubend:

    received   all up to here has arrived
    handed     all up to here was handed out: the checkpoint that the application stores with its data
    consumed   all up to here was handed out, and the application came back for more

No clock and no socket. Bounded by the credit that the subscription grants, which is counted here too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from tidemark.errors import WireError
from tidemark.message.batches.batch import EventBatch
from tidemark.wire.frames import Deliver
from tidemark.wire.frames import Gap as GapFrame

#: Credit goes back to the broker in steps of this share of the window, or when the inbox is idle.
GRANT_SHARE = 2

#: Why there is a gap.
RELEASED = "released"
RECONNECTED = "reconnected"
NOT_KEPT = "not kept"


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
        #: of a gap: why
        self.reason = reason

    @property
    def is_silence(self) -> bool:
        """Nothing to hand out."""
        return self.batch is None and not self.reason

    @property
    def bytes(self) -> int:
        """What it takes of the credit."""
        return len(self.batch.body) if self.batch is not None else 0


class InboxCursor:
    """The piece that is being handed out. `done` rows are consumed, `out` rows handed out."""

    __slots__ = ("before", "done", "out", "piece", "positions")

    def __init__(self, piece: InboxEntry, before: dict[str, int]) -> None:
        self.piece = piece
        #: handed out before this piece, all pubends
        self.before = before
        #: positions[row]: where the pubend stands once the row is handed out
        self.positions: list[int] = piece.batch.ticks.tolist() if piece.batch is not None else [piece.upto]
        self.positions[-1] = piece.upto
        self.done = 0
        self.out = 0

    @property
    def is_finished(self) -> bool:
        """Every row is handed out."""
        return self.out == len(self.positions)

    def position(self, rows: int) -> int:
        """Where the pubend stands after that many rows."""
        return self.positions[rows - 1] if rows else self.piece.base


class Inbox:
    """All that was delivered and not yet consumed."""

    def __init__(self, window_bytes_max: int, token: Mapping[str, int] | None = None) -> None:
        self.window_bytes_max = window_bytes_max
        self._handed: dict[str, int] = dict(token or {})
        self._received: dict[str, int] = dict(self._handed)
        #: pubends that were heard of since the last (re)connection
        self._heard: set[str] = set()
        #: pubends of which the broker has said where the subscription stands
        self.started: set[str] = set()
        self._pieces: deque[InboxEntry] = deque()
        #: pubend -> its last piece that waits
        self._last: dict[str, InboxEntry] = {}
        self.cursor: InboxCursor | None = None
        #: bytes waiting or being handed out
        self._bytes = 0
        #: bytes consumed and not granted again yet
        self._owed = 0
        #: pubend -> where the last event or gap handed out ended
        self._last_row: dict[str, int] = {}

    # From the broker.

    def connected(self, token: Mapping[str, int], *, repeats: bool) -> None:
        """A broker starts, or starts again, to deliver, and says where.

        If it `repeats` what was not consumed, what waits here is dropped, for it will come again. Where it
        starts beyond what has been received, the first delivery will show a gap.
        """
        self._heard.clear()
        if repeats:
            self._drop_waiting()
        self.started.update(token)
        for pubend, tick in token.items():
            if pubend not in self._received:
                self._received[pubend] = self._handed[pubend] = tick

    def _drop_waiting(self) -> None:
        self._pieces.clear()
        self._last.clear()
        self._received = dict(self._handed)
        self._bytes = 0
        if self.cursor is not None:
            piece = self.cursor.piece
            self._received[piece.pubend] = piece.upto
            self._bytes = piece.bytes

    @property
    def credit(self) -> int:
        """What a new connection may send at once. What waits here is granted when it is consumed."""
        self._owed = 0
        return max(1, self.window_bytes_max - self._bytes)

    def delivered(self, frame: Deliver, *, missed: str) -> bool:
        """A Deliver came; is there something to hand out? `missed` says why, if something lies in between."""
        return self._arrived(InboxEntry(frame.pubend, frame.base, frame.upto, frame.batch), missed)

    def let_go(self, frame: GapFrame, *, missed: str) -> bool:
        """A Gap came."""
        return self._arrived(InboxEntry(frame.pubend, frame.base, frame.upto, reason=RELEASED), missed)

    def _arrived(self, piece: InboxEntry, missed: str) -> bool:
        pubend = piece.pubend
        known = self._received.get(pubend)
        if known is None:
            self._received[pubend] = self._handed[pubend] = known = piece.base
        is_first = pubend not in self._heard
        self._heard.add(pubend)
        self.started.add(pubend)
        if piece.base > known:
            if not is_first:
                raise WireError(f"{pubend}: told up to {known}, then from {piece.base}: a frame is missing")
            self._wait(InboxEntry(pubend, known, piece.base, reason=missed))
        elif piece.base < known:
            piece = self._rest(piece, known)
        if piece.upto > piece.base:
            self._wait(piece)
        return piece.base > known or not piece.is_silence

    def _rest(self, piece: InboxEntry, known: int) -> InboxEntry:
        """The part of a piece beyond what is here already; the credit of what is dropped is owed."""
        if piece.upto <= known:
            rest = InboxEntry(piece.pubend, known, known)
        elif piece.batch is None:
            rest = InboxEntry(piece.pubend, known, piece.upto, reason=piece.reason)
        else:
            rows = piece.batch.ticks > known
            rest = InboxEntry(piece.pubend, known, piece.upto, piece.batch.take(rows) if rows.any() else None)
        self._owed += piece.bytes - rest.bytes
        return rest

    def _wait(self, piece: InboxEntry) -> None:
        pubend = piece.pubend
        self._received[pubend] = piece.upto
        if piece.is_silence:
            before = self._last.get(pubend)
            if before is not None and before.is_silence:
                before.upto = piece.upto
                return
            if before is None and (self.cursor is None or self.cursor.piece.pubend != pubend):
                self._handed[pubend] = piece.upto
                return
        self._pieces.append(piece)
        self._last[pubend] = piece
        self._bytes += piece.bytes

    # To the application.

    @property
    def next_batch(self) -> EventBatch | None:
        """The events that `take` would give next, silence and gaps aside: their schemas may be needed."""
        return next((piece.batch for piece in self._pieces if not piece.is_silence), None)

    def take(self) -> InboxCursor | None:
        """The application wants more: what it had is consumed. None when nothing waits."""
        self._retire()
        while self._pieces:
            piece = self._pieces.popleft()
            if self._last.get(piece.pubend) is piece:
                del self._last[piece.pubend]
            if not piece.is_silence:
                self.cursor = InboxCursor(piece, dict(self._handed))
                return self.cursor
            self._handed[piece.pubend] = piece.upto
        return None

    def finish(self) -> None:
        """What was handed out is consumed, although nothing more is wanted."""
        cursor = self.cursor
        if cursor is not None:
            cursor.done = cursor.out

    def _retire(self) -> None:
        cursor = self.cursor
        if cursor is None:
            return
        assert cursor.is_finished
        piece = cursor.piece
        self._handed[piece.pubend] = self._last_row[piece.pubend] = piece.upto
        self._bytes -= piece.bytes
        self._owed += piece.bytes
        self.cursor = None

    def grant(self, *, is_idle: bool = False) -> int:
        """Bytes to grant now; 0 when it is not worth a frame yet."""
        if self._owed == 0 or (not is_idle and self._owed < self.window_bytes_max // GRANT_SHARE):
            return 0
        owed, self._owed = self._owed, 0
        return owed

    # Positions.

    def handed(self) -> dict[str, int]:
        """Everything handed out, what the application is working on included."""
        return self._positions(self.cursor.out if self.cursor else 0)

    def consumed(self) -> dict[str, int]:
        """Everything handed out that the application came back from."""
        return self._positions(self.cursor.done if self.cursor else 0)

    def quiet(self, acknowledged: dict[str, int]) -> dict[str, int]:
        """`acknowledged`, and the silence right behind what was acknowledged."""
        result = dict(acknowledged)
        for pubend, position in self._handed.items():
            behind = self.cursor is None or self.cursor.piece.pubend != pubend or self.cursor.out == 0
            last = self._last_row.get(pubend)
            if behind and (last is None or acknowledged.get(pubend, last - 1) >= last):
                result[pubend] = max(position, acknowledged.get(pubend, position))
        return result

    def _positions(self, rows: int) -> dict[str, int]:
        # A copy in one step: the synchronous client reads it from another thread.
        positions = dict(self._handed)
        cursor = self.cursor
        if cursor is not None and rows:
            positions[cursor.piece.pubend] = cursor.position(rows)
        return positions
