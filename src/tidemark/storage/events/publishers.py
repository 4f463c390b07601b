"""Publishers: the last event of each publisher, so that a batch that is sent again is not logged again.

Whoever an application has named is remembered for ever: the pubend takes no new name beyond its bound
(`limits.publishers`). Of names that clients made for themselves, the log keeps the MADE_NAMES_MAX that
published last; nobody comes back under such a name once its client has ended. With a name its last move and
its owner are remembered.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain, pairwise
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
        #: name -> its last move and its owner, of those that ever moved or have an owner
        self._moves: dict[str, PublisherMove] = {}
        #: bytes of all names, of all moves in a snapshot, and of all owners
        self._name_bytes = 0
        self._move_bytes = 0
        self._owner_bytes = 0

    def __len__(self) -> int:
        return len(self._given) + len(self._made)

    @property
    def encoded_bytes(self) -> int:
        """The bytes of a snapshot."""
        moves = _MOVES_HEAD.size + self._move_bytes if self._moves else 0
        owners = 2 * len(self) + self._owner_bytes if self._owner_bytes else 0
        return _HEAD.size + _ENTRY_BYTES * len(self) + self._name_bytes + moves + owners

    def get(self, name: str) -> LastPublished | None:
        """Returns the publisher's last event; None if the publisher is not remembered."""
        return self._given.get(name) or self._made.get(name)

    def as_dict(self) -> dict[str, LastPublished]:
        """Returns all publishers: the names made by clients and then the given ones, the most idle first."""
        return self._made | self._given

    def moves(self) -> dict[str, PublisherMove]:
        """Returns the last move and the owner of each publisher that ever moved or has an owner."""
        return dict(self._moves)

    def move(self, name: str, published: LastPublished, move: PublisherMove) -> Undo:
        """Remember that a publisher left, came or got an owner, with its last event.

        Returns the function that takes that back.
        """
        before, forget = self._moves.get(name), self.note(name, published)
        self._set_move(name, move)

        def undo() -> None:
            forget()
            self._set_move(name, before)

        return undo

    def _set_move(self, name: str, move: PublisherMove | None) -> None:
        before = self._moves.pop(name, None)
        if before is not None:
            self._move_bytes -= _move_bytes(before)
            self._owner_bytes -= len(before.owner.encode())
        if move is not None:
            self._moves[name] = move
            self._move_bytes += _move_bytes(move)
            self._owner_bytes += len(move.owner.encode())

    def note(self, name: str, published: LastPublished) -> Undo:
        """Remember `published` as the publisher's last event. Returns the function that takes that back."""
        if name in self._given:
            return self._note_given(name, published)
        entries = self._made if name in self._made or is_made(name) else self._given
        before = self._pop(entries, name)
        self._put(entries, name, published)
        forgotten: tuple[str, LastPublished] | None = None
        move: PublisherMove | None = None
        if entries is self._made and len(entries) > MADE_NAMES_MAX:
            idle = next(iter(entries))
            last, move = self._pop(entries, idle), self._moves.get(idle)
            assert last is not None
            forgotten = idle, last
            self._set_move(idle, None)

        def undo() -> None:
            self._pop(entries, name)
            for old, event in ((name, before), forgotten or (name, None)):
                if event is not None:
                    self._put(entries, old, event)
            if forgotten is not None:
                self._set_move(forgotten[0], move)

        return undo

    def _note_given(self, name: str, published: LastPublished) -> Undo:
        """Do what `note` does, for a given name that is remembered: the most frequent case."""
        before = self._given.pop(name)
        self._given[name] = published

        def undo() -> None:
            del self._given[name]
            self._given[name] = before

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

        snapshot := covered i64 | count u32 | sequences i64[n] | ticks i64[n] | sizes u16[n] | names | moves |
                    owners
        moves := count u32 | (place among the names u32 | number i64 | bytes of `to` u16 | to) ...; or nothing
        owners := sizes u16[n] | owners, one for each name and empty for none; or nothing
        """
        entries = self.as_dict()
        # All at once: there may be a hundred thousand, and publishers wait meanwhile.
        count = len(entries)
        events = np.fromiter(chain.from_iterable(entries.values()), "<i8", 2 * count).reshape(count, 2)
        pieces = [_HEAD.pack(covered, count), events.T.tobytes(), *_encode_texts(entries)]
        if self._moves:
            moved = [each for each in enumerate(map(self._moves.get, entries)) if _has_moved(each[1])]
            pieces.append(_MOVES_HEAD.pack(len(moved)))
            for place, move in moved:
                assert move is not None
                to = move.to.encode()
                pieces.append(_MOVE.pack(place, move.number, len(to)) + to)
        if self._owner_bytes:
            pieces += _encode_texts([move.owner if move else "" for move in map(self._moves.get, entries)])
        return pieces


def decode_publishers(data: bytes) -> tuple[int, Publishers]:
    """Returns `covered`, which `encode` was given, and the publishers of a snapshot."""
    covered, count = _HEAD.unpack_from(data)
    sequences, ticks = np.frombuffer(data, "<i8", 2 * count, _HEAD.size).reshape(2, count).tolist()
    publishers = Publishers()
    found, start = _decode_texts(data, _HEAD.size + 16 * count, count)
    for name, sequence, tick in zip(found, sequences, ticks, strict=True):
        publishers.note(name, LastPublished(sequence, tick))
    moved = 0
    if start < len(data):
        (moved,) = _MOVES_HEAD.unpack_from(data, start)
        start += _MOVES_HEAD.size
    for _ in range(moved):
        place, number, size = _MOVE.unpack_from(data, start)
        start += _MOVE.size + size
        publishers._set_move(found[place], PublisherMove(number, data[start - size : start].decode()))
    if start < len(data):
        owners, _ = _decode_texts(data, start, count)
        for name, owner in zip(found, owners, strict=True):
            if owner:
                move = publishers._moves.get(name, PublisherMove(0))
                publishers._set_move(name, move._replace(owner=owner))
    return covered, publishers


def _encode_texts(texts: Collection[str]) -> list[bytes]:
    """Returns sizes and bytes of texts."""
    data = "".join(texts).encode()
    sizes = map(len, texts) if len(data) == sum(map(len, texts)) else (len(each.encode()) for each in texts)
    return [np.fromiter(sizes, "<u2", len(texts)).tobytes(), data]


def _decode_texts(data: bytes, start: int, count: int) -> tuple[list[str], int]:
    """Returns the texts that `_encode_texts` encoded, and where their bytes end."""
    ends = start + 2 * count + np.frombuffer(data, "<u2", count, start).cumsum(dtype=np.int64)
    bounds = [start + 2 * count, *ends.tolist()]
    return [data[first:end].decode() for first, end in pairwise(bounds)], bounds[-1]


def _has_moved(move: PublisherMove | None) -> bool:
    return move is not None and bool(move.number or move.to)


def _move_bytes(move: PublisherMove) -> int:
    return _MOVE.size + len(move.to.encode()) if _has_moved(move) else 0
