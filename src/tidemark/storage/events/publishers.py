"""Publishers: the last event of each publisher, so that a batch that is sent again is not logged again.

Whoever an application has named is remembered for ever: the pubend takes no new name beyond its bound
(`limits.publishers`). Of names that clients made for themselves, the log keeps the MADE_NAMES_MAX that
published last; nobody comes back under such a name once its client has ended.
"""

from __future__ import annotations

from itertools import chain
from struct import Struct
from typing import NamedTuple

import numpy as np

from tidemark.message.publisher_names import MADE_NAMES_MAX, PublisherMove, is_made
from tidemark.storage.log.stream import Undo
from tidemark.ticks.tick import Tick

_HEAD = Struct("<qI")
#: bytes of a publisher in a snapshot, besides its name: two numbers, and the size of the name
_ENTRY_BYTES = 18
#: how many publishers have moved; and of each of them: which it is, the number of the move, the size of `to`
_MOVES_HEAD = Struct("<I")
_MOVE = Struct("<IqH")


class LastPublished(NamedTuple):
    """The last event of a publisher: its sequence number and its tick."""

    sequence: int
    tick: Tick


class Publishers:
    """The last event of each publisher."""

    def __init__(self) -> None:
        #: name -> its last event, in the order of the ticks: of given names, and of names made by clients
        self._given: dict[str, LastPublished] = {}
        self._made: dict[str, LastPublished] = {}
        #: name -> its last move, of those that ever moved
        self._moves: dict[str, PublisherMove] = {}
        #: bytes of all names, and of all moves in a snapshot
        self._name_bytes = 0
        self._move_bytes = 0

    def __len__(self) -> int:
        return len(self._given) + len(self._made)

    @property
    def encoded_bytes(self) -> int:
        """The bytes of a snapshot."""
        moves = _MOVES_HEAD.size + self._move_bytes if self._moves else 0
        return _HEAD.size + _ENTRY_BYTES * len(self) + self._name_bytes + moves

    def get(self, name: str) -> LastPublished | None:
        """Returns the publisher's last event; None if the publisher is not remembered."""
        return self._given.get(name) or self._made.get(name)

    def as_dict(self) -> dict[str, LastPublished]:
        """Returns all publishers: the names made by clients and then the given ones, the most idle first."""
        return self._made | self._given

    def moves(self) -> dict[str, PublisherMove]:
        """Returns the last move of each publisher that ever moved."""
        return dict(self._moves)

    def move(self, name: str, published: LastPublished, move: PublisherMove) -> Undo:
        """Remember that a publisher left or came, with its last event. Returns the function to undo that."""
        before, forget = self._moves.get(name), self.note(name, published)
        self._set_move(name, move)

        def undo() -> None:
            forget()
            self._set_move(name, before)

        return undo

    def _set_move(self, name: str, move: PublisherMove | None) -> None:
        before = self._moves.pop(name, None)
        self._move_bytes -= _move_bytes(before)
        if move is not None:
            self._moves[name] = move
            self._move_bytes += _move_bytes(move)

    def note(self, name: str, published: LastPublished) -> Undo:
        """Remember `published` as the publisher's last event. Returns the function that takes that back."""
        entries = self._made if is_made(name) else self._given
        before = self._pop(entries, name)
        self._put(entries, name, published)
        forgotten: tuple[str, LastPublished] | None = None
        if entries is self._made and len(entries) > MADE_NAMES_MAX:
            idle = next(iter(entries))
            last = self._pop(entries, idle)
            assert last is not None
            forgotten = idle, last

        def undo() -> None:
            self._pop(entries, name)
            for old, event in ((name, before), forgotten or (name, None)):
                if event is not None:
                    self._put(entries, old, event)

        return undo

    def _put(self, entries: dict[str, LastPublished], name: str, published: LastPublished) -> None:
        entries[name] = published
        self._name_bytes += len(name.encode())

    def _pop(self, entries: dict[str, LastPublished], name: str) -> LastPublished | None:
        found = entries.pop(name, None)
        if found is not None:
            self._name_bytes -= len(name.encode())
        return found

    def encode(self, covered: int) -> list[bytes]:
        """Returns a snapshot of all publishers, for the batches up to the index `covered`.

        snapshot := covered i64 | count u32 | sequences i64[n] | ticks i64[n] | sizes u16[n] | names | moves
        moves := count u32 | (place among the names u32 | number i64 | bytes of `to` u16 | to) ...; or nothing
        """
        entries = self.as_dict()
        # All at once: there may be a hundred thousand, and publishers wait meanwhile.
        names, count = "".join(entries).encode(), len(entries)
        sizes = (
            map(len, entries) if len(names) == sum(map(len, entries)) else (len(n.encode()) for n in entries)
        )
        lengths = np.fromiter(sizes, "<u2", count)
        events = np.fromiter(chain.from_iterable(entries.values()), "<i8", 2 * count).reshape(count, 2)
        pieces = [_HEAD.pack(covered, count), events.T.tobytes(), lengths.tobytes(), names]
        if self._moves:
            pieces.append(_MOVES_HEAD.pack(len(self._moves)))
            for place, name in enumerate(entries):
                move = self._moves.get(name)
                if move is not None:
                    to = move.to.encode()
                    pieces.append(_MOVE.pack(place, move.number, len(to)) + to)
        return pieces


def decode_publishers(data: bytes) -> tuple[int, Publishers]:
    """Returns `covered`, which `encode` was given, and the publishers of a snapshot."""
    covered, count = _HEAD.unpack_from(data)
    sequences, ticks = np.frombuffer(data, "<i8", 2 * count, _HEAD.size).reshape(2, count).tolist()
    names = _HEAD.size + 16 * count
    ends = names + 2 * count + np.frombuffer(data, "<u2", count, names).cumsum(dtype=np.int64)
    publishers = Publishers()
    start = names + 2 * count
    found: list[str] = []
    for end, sequence, tick in zip(ends.tolist(), sequences, ticks, strict=True):
        found.append(data[start:end].decode())
        publishers.note(found[-1], LastPublished(sequence, tick))
        start = end
    moved = 0
    if start < len(data):
        (moved,) = _MOVES_HEAD.unpack_from(data, start)
        start += _MOVES_HEAD.size
    for _ in range(moved):
        place, number, size = _MOVE.unpack_from(data, start)
        start += _MOVE.size + size
        publishers._set_move(found[place], PublisherMove(number, data[start - size : start].decode()))
    return covered, publishers


def _move_bytes(move: PublisherMove | None) -> int:
    return 0 if move is None else _MOVE.size + len(move.to.encode())
