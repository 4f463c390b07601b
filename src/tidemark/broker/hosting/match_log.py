"""MatchLog: which events matched which durable subscribers, on the way to the PFS (DSN'03 4.2).

Only what the PFS has on disk is reported upstream as delivered: a host that crashes goes on from there.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from tidemark.broker.effects import AppendPfs
from tidemark.broker.hosting.constream import Constream, MatchedPiece, Subscribers
from tidemark.broker.turn import Turn
from tidemark.matching.audience import Rows
from tidemark.ticks import NO_TICKS

#: Match sets whose number is remembered; a set that is met again after it was forgotten gets a new number.
MATCH_SETS_MAX = 65_536
#: Memory for those sets: the numbers of their members, 4 bytes each, and about 200 bytes for each set.
MATCH_SETS_BYTES_MAX = 32 << 20
_SET_BYTES = 200
_NO_SETS = np.zeros(0, np.uint32)


class MatchLog:
    """Writes pieces of constreams to the PFS. A set of subscribers has the same number at every pubend."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._out = turn.out
        self._sets: dict[bytes, int] = {}
        self._sets_bytes = 0
        self._next_set = 1

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
                sets.append(np.full(len(rows), number, np.uint32))
        ticks, numbers, lengths = NO_TICKS, _NO_SETS, _NO_SETS
        if places and piece.batch is not None:
            where, numbers = places[0], sets[0]
            if len(places) > 1:
                where = np.concatenate(places)
                order = np.argsort(where, kind="stable")
                where, numbers = where[order], np.concatenate(sets)[order]
            ticks, lengths = piece.batch.ticks[where], piece.batch.lengths(where)
        self._out.add(AppendPfs(pubend, piece.base, piece.upto, ticks, numbers, lengths, members))
        self._turn.pfs.after(partial(_synced, constream, piece.upto))

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


def _synced(constream: Constream, upto: int) -> None:
    if constream.synced is not None:
        constream.synced = max(constream.synced, upto)
