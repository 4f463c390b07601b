"""MatchLog: which events matched which durable subscribers, on the way to the PFS (DSN'03 4.2).

Only what the PFS has on disk is reported upstream as delivered: a host that crashes goes on from there.

While somebody catches up, what was written last is also remembered in memory (`RecentMatches`). A read of the
PFS answers what had been written when it was asked for. While it waits for the reads of others the constream
moves on, so that many catchup streams could read again and again and never reach the constream.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np

from tidemark.broker.effects import AppendPfs
from tidemark.broker.hosting.catchup import Ticks
from tidemark.broker.hosting.constream import Constream, MatchedPiece, Subscribers
from tidemark.broker.turn import Turn
from tidemark.matching.audience import Rows
from tidemark.ticks import NO_TICKS

#: Match sets whose number is remembered; a set that is met again after it was forgotten gets a new number.
MATCH_SETS_MAX = 65_536
#: Memory for those sets: the numbers of their members, 4 bytes each, and about 200 bytes for each set.
MATCH_SETS_BYTES_MAX = 32 << 20
_SET_BYTES = 200
#: Memory for what was written last, for each pubend that somebody catches up with.
RECENT_BYTES_MAX = 256 << 10
#: Bytes that a remembered piece counts for besides its arrays.
_PIECE_BYTES = 600
_NO_SETS = np.zeros(0, np.uint32)


class RecentMatches:
    """What was written of one pubend last: `(base, upto]`, without holes, in bounded memory."""

    def __init__(self, base: int) -> None:
        self.base = self.upto = base
        #: the pieces in order, each with the bytes it counts for
        self._pieces: deque[tuple[AppendPfs, int]] = deque()
        self._bytes = 0
        #: Made from the pieces when somebody asks, None after a change: ticks[row], set[row], and for each
        #: pair of a subscriber and a set that it is in, sorted by subscriber, of[pair] and into[pair].
        self._rows: tuple[Ticks, Subscribers, Subscribers, Subscribers] | None = None

    def add(self, piece: AppendPfs) -> None:
        """The PFS was given one more piece, which begins at `upto`; the oldest ones are let go for it."""
        assert piece.base == self.upto
        members = sum(_SET_BYTES + each.nbytes for each in piece.members.values())
        size = _PIECE_BYTES + piece.ticks.nbytes + piece.sets.nbytes + members
        self._pieces.append((piece, size))
        self._bytes += size
        self.upto = piece.upto
        while self._bytes > RECENT_BYTES_MAX:
            oldest, size = self._pieces.popleft()
            self._bytes -= size
            self.base = oldest.upto
        self._rows = None

    def beyond(self, base: int, subscriber: int) -> Ticks | None:
        """Return the ticks of `(base, upto]` that matched a subscriber; None if `base` is not remembered."""
        if not self.base <= base <= self.upto:
            return None
        if self._rows is None:
            self._rows = self._joined()
        ticks, numbers, of, into = self._rows
        first, last = np.searchsorted(of, (subscriber, subscriber + 1)).tolist()
        at = int(np.searchsorted(ticks, base, side="right"))
        return ticks[at:][np.isin(numbers[at:], into[first:last])]

    def _joined(self) -> tuple[Ticks, Subscribers, Subscribers, Subscribers]:
        pieces = [piece for piece, _ in self._pieces]
        sets = {number: who for piece in pieces for number, who in piece.members.items()}
        if not sets:
            return NO_TICKS, _NO_SETS, _NO_SETS, _NO_SETS
        of = np.concatenate(list(sets.values()))
        into = np.repeat(np.array(list(sets), np.uint32), [len(each) for each in sets.values()])
        order = np.argsort(of, kind="stable")
        ticks = np.concatenate([piece.ticks for piece in pieces])
        return ticks, np.concatenate([piece.sets for piece in pieces]), of[order], into[order]


class MatchLog:
    """Writes pieces of constreams to the PFS. A set of subscribers has the same number at every pubend."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._out = turn.out
        self._sets: dict[bytes, int] = {}
        self._sets_bytes = 0
        self._next_set = 1
        #: pubend -> what was written last; only for pubends that somebody catches up with
        self._recent: dict[str, RecentMatches] = {}

    def recent(self, pubend: str, subscriber: int, base: int) -> tuple[int, Ticks] | None:
        """Return what matched a subscriber beyond `base`, as a tick later than that and the ticks up to it.

        None if that is not in memory, and the PFS has to be read.
        """
        recent = self._recent.get(pubend)
        if recent is None or recent.upto <= base:
            return None
        ticks = recent.beyond(base, subscriber)
        return None if ticks is None else (recent.upto, ticks)

    def write(self, pubend: str, constream: Constream, piece: MatchedPiece) -> None:
        """Append to the PFS which rows of the piece matched which durable subscribers."""
        places: list[Rows] = []
        sets: list[Subscribers] = []
        members: dict[int, Subscribers] = {}
        for rows, who in piece.matches:
            durable = constream.active.chosen(who, durable=True)
            if len(durable):
                number = self._number(durable)
                members[number] = durable
                places.append(rows)
                sets.append(_repeated(number, len(rows)))
        ticks, numbers, lengths = NO_TICKS, _NO_SETS, _NO_SETS
        if places and piece.batch is not None and piece.batch.count == 1:
            # A copy: what is remembered of the event must not hold the event itself.
            ticks, numbers = piece.batch.ticks.copy(), sets[0]
            lengths = _repeated(len(piece.batch.body), 1)
        elif places and piece.batch is not None:
            where, numbers = places[0], sets[0]
            if len(places) > 1:
                where = np.concatenate(places)
                order = np.argsort(where, kind="stable")
                where, numbers = where[order], np.concatenate(sets)[order]
            ticks, lengths = piece.batch.ticks[where], piece.batch.lengths(where)
        written = AppendPfs(pubend, piece.base, piece.upto, ticks, numbers, lengths, members)
        self._out.add(written)
        self._remember(written, somebody_waits=bool(constream.catchups))
        self._turn.pfs.after(partial(_synced, constream, piece.upto))

    def _remember(self, written: AppendPfs, *, somebody_waits: bool) -> None:
        recent = self._recent.get(written.pubend)
        if not somebody_waits:
            if recent is not None:
                del self._recent[written.pubend]
            return
        if recent is None or recent.upto != written.base:
            # What lies between was lost, and nobody knows what would have matched.
            recent = self._recent[written.pubend] = RecentMatches(written.base)
        recent.add(written)

    def _number(self, durable: Subscribers) -> int:
        key = durable.tobytes()
        number = self._sets.get(key)
        if number is None:
            if len(self._sets) >= MATCH_SETS_MAX or self._sets_bytes > MATCH_SETS_BYTES_MAX:
                self._sets.clear()
                self._sets_bytes = 0
            self._sets_bytes += len(key) + _SET_BYTES
            number = self._sets[key] = self._next_set
            self._next_set += 1
        return number


def _repeated(number: int, count: int) -> Subscribers:
    """Return the number as often as that; for an event alone np.full takes several times as long."""
    return np.array((number,), np.uint32) if count == 1 else np.full(count, number, np.uint32)


def _synced(constream: Constream, upto: int) -> None:
    if constream.synced is not None:
        constream.synced = max(constream.synced, upto)
