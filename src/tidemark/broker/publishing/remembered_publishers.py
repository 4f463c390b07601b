"""RememberedPublishers: the last number of each publisher of a pubend, so that nothing is logged twice.

A publisher that an application has named is never forgotten, since it may come back at any time and repeat
what it was not told to be logged. A new name for which there is no room is refused instead. Names that
clients made for themselves are kept apart, so that they push nobody out: beyond MADE_NAMES_MAX the one that
has not published for the longest time is forgotten. If its client is still there, its next number is refused.
With a name its last move is remembered, away from the pubend or to it, and its owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.message.publisher_names import MADE_NAMES_MAX, PublisherMove, is_made

#: Memory for publishers that applications have named, of one pubend; a snapshot of them fits into one record
#: of the log.
PUBLISHERS_BYTES_MAX = 32 << 20
#: What one of them takes besides the bytes of its name: an entry of a dictionary, a tuple and two numbers.
PUBLISHER_BYTES = 256

#: the number of a publisher's last event, and the event's tick
Last = tuple[int, int]


class RememberedPublishers:
    """The last event, the last move and the owner of each publisher: appended, and what of it is durable."""

    def __init__(
        self, recovered: Mapping[str, Last], moves: Mapping[str, PublisherMove] | None = None
    ) -> None:
        #: name -> its last event that was appended; the names made by clients in the order of their ticks
        self._given: dict[str, Last] = {}
        self._made: dict[str, Last] = {}
        #: name -> its last durable event, None if it has none, for names with an event that is not durable
        self._durable: dict[str, Last | None] = {}
        #: what the given names take, in bytes
        self.bytes = 0
        #: name -> its last move and its owner, of those that ever moved or have an owner
        self._moves = dict(moves or {})
        #: name -> its last durable move, None if it has none, for names with a move that is not durable
        self._durable_moves: dict[str, PublisherMove | None] = {}
        self.bytes += sum(_move_size(name, move) for name, move in self._moves.items())
        for name, last in recovered.items():
            self._set(name, last)

    def __len__(self) -> int:
        return len(self._given) + len(self._made)

    def get(self, name: str) -> Last | None:
        """Return the last event that was appended; None if the publisher is not remembered."""
        return self._given.get(name) or self._made.get(name)

    def has_room(self, name: str) -> bool:
        """Return whether `name` is remembered, or can be."""
        return self.bytes + _size(name) <= PUBLISHERS_BYTES_MAX or name in self._given or is_made(name)

    def appended(self, name: str, last: Last) -> None:
        """A batch that ends with this event was appended."""
        given = self._given
        if name in given:
            self._durable.setdefault(name, given[name])
            given[name] = last
            return
        if name not in self._durable:
            self._durable[name] = self._made.get(name)
        self._set(name, last)

    def durable(self, name: str, last: Last) -> None:
        """The batch that ends with this event is durable."""
        if self.get(name) == last:
            self._durable.pop(name, None)
        else:
            self._durable[name] = last

    def move(self, name: str) -> PublisherMove | None:
        """Return the publisher's last move and its owner; None if it never moved and belongs to nobody."""
        return self._moves.get(name)

    def owner(self, name: str) -> str:
        """Return the principal that a publisher's name belongs to; "" if it belongs to nobody."""
        move = self._moves.get(name)
        return "" if move is None else move.owner

    def moved(self, name: str, last: Last, move: PublisherMove) -> None:
        """A move or an owner was appended; `last` is the last event, here or at an earlier pubend."""
        self.appended(name, last)
        self._durable_moves.setdefault(name, self._moves.get(name))
        self._set_move(name, move)

    def move_durable(self, name: str, last: Last, move: PublisherMove) -> None:
        """The move, or the owner, is durable."""
        self.durable(name, last)
        if self._moves.get(name) == move:
            self._durable_moves.pop(name, None)
        else:
            self._durable_moves[name] = move

    def discarded(self) -> None:
        """Everything that is not durable was discarded."""
        moves, self._durable_moves = self._durable_moves, {}
        for name, move in moves.items():
            self._set_move(name, move)
        before, self._durable = self._durable, {}
        for name, last in before.items():
            if last is not None:
                self._set(name, last)
            elif self._given.pop(name, None) is not None:
                self.bytes -= _size(name)
            else:
                self._made.pop(name, None)

    def _set_move(self, name: str, move: PublisherMove | None) -> None:
        before = self._moves.pop(name, None)
        self.bytes -= _move_size(name, before) if before is not None else 0
        if move is not None:
            self._moves[name] = move
            self.bytes += _move_size(name, move)

    def _set(self, name: str, last: Last) -> None:
        if name in self._given:
            self._given[name] = last
        elif name in self._made or is_made(name):
            self._made.pop(name, None)
            self._made[name] = last
            if len(self._made) > MADE_NAMES_MAX:
                idle = next(iter(self._made))
                del self._made[idle]
                self._moves.pop(idle, None)
                self._durable_moves.pop(idle, None)
        else:
            self._given[name] = last
            self.bytes += _size(name)


def _size(name: str) -> int:
    return PUBLISHER_BYTES + len(name.encode())


def _move_size(name: str, move: PublisherMove) -> int:
    """Return what a move and an owner take; names that clients made have a bound of their own."""
    return 0 if is_made(name) else PUBLISHER_BYTES + len(move.to.encode()) + len(move.owner.encode())
