"""What leaves first where a link is slow, and what may be dropped there.

Frames to a neighbour are of two classes. *History* answers questions: knowledge that answers a nack, and
Fetched. Everything else is *live*: first-time knowledge, questions, and what brokers say of themselves. Live
frames go first, and history has HISTORY_SHARE of a link that live frames would fill. Within a class frames
keep their order. History may therefore arrive after live frames that were sent later, which the protocol
allows of all knowledge (docs/architecture.md#what-may-overtake-what).

A neighbour may ask again for what waits here to be sent to it: the same answer does not wait twice.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from tidemark.ticks import RangeSet
from tidemark.wire.frames import (
    AckExpected,
    Claim,
    Fetch,
    Fetched,
    Frame,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Links,
    Nack,
    Overlay,
    Release,
    Together,
    Topic,
    Unfollow,
    Ways,
)

#: Frames that are sent to a slow neighbour too: without them it would be wrong about this broker. It asks
#: again for all others.
NEVER_DROPPED = frozenset((Hello, Links, Ways, Interest, Unfollow, Claim, Topic, Release, Heard, Overlay))
#: Frames that are answered, besides releases that ask.
QUESTIONS = frozenset((AckExpected, Fetch, Hello, Interest, Nack))
#: One byte in so many is of history while both classes wait.
HISTORY_SHARE = 8

Item = TypeVar("Item")


def undroppable(frame: Frame) -> Frame | None:
    """Return what of `frame` is sent to a neighbour that does not keep up; None if it asks again for all."""
    if not isinstance(frame, Together):
        return frame if type(frame) in NEVER_DROPPED else None
    kept = tuple(each for each in frame.frames if type(each) in NEVER_DROPPED)
    return Together(kept) if kept else None


def is_history(frame: Frame) -> bool:
    """Whether `frame` answers a question, and so gives way to all frames that do not."""
    kind = type(frame)
    return kind is Fetched or (kind is Knowledge and not frame.first)  # type: ignore[union-attr]


def is_question(frame: Frame) -> bool:
    """Whether the neighbour says something to `frame` at once, if it is alive: who waits for it asks soon."""
    match frame:
        case Together(frames=frames):
            return any(map(is_question, frames))
        case Release(rows=rows):
            return any(row.asks for row in rows)
        case _:
            return type(frame) in QUESTIONS


def events_in(frame: Frame) -> int:
    """Return the number of events that a frame to a neighbour carries."""
    if isinstance(frame, Together):
        return sum(map(events_in, frame.frames))
    return frame.batch.count if isinstance(frame, Knowledge) and frame.batch is not None else 0


class HistoryQueue(Generic[Item]):
    """History that waits for live frames, in order; the owner sends live frames itself, and reports them."""

    __slots__ = ("_fetched", "_items", "_live_bytes", "_ranges", "bytes")

    def __init__(self) -> None:
        self._items: deque[tuple[Frame, Item, int]] = deque()
        #: the bytes of all items that wait
        self.bytes = 0
        #: bytes of live frames that were sent since history was, while history waited
        self._live_bytes = 0
        #: (pubend, version) -> the ranges of the knowledge that waits; the tickets of the Fetched that wait
        self._ranges: dict[tuple[str, int], RangeSet] = {}
        self._fetched: set[int] = set()

    def has(self, frame: Frame) -> bool:
        """Whether what waits tells the neighbour all that `frame` would."""
        if isinstance(frame, Fetched):
            return frame.ticket in self._fetched
        assert isinstance(frame, Knowledge)
        ranges = self._ranges.get((frame.pubend, frame.version))
        return frame.base < frame.upto and ranges is not None and ranges.covers(frame.base, frame.upto)

    def put(self, frame: Frame, item: Item, size: int) -> None:
        """Let an item of `size` bytes wait: `frame`, in whatever form the owner sends it."""
        self._items.append((frame, item, size))
        self.bytes += size
        if isinstance(frame, Fetched):
            self._fetched.add(frame.ticket)
        elif isinstance(frame, Knowledge) and frame.base < frame.upto:
            self._ranges.setdefault((frame.pubend, frame.version), RangeSet()).add(frame.base, frame.upto)

    def passed(self, size: int) -> None:
        """A live frame of `size` bytes was sent before what waits."""
        self._live_bytes += size if self._items else 0

    @property
    def is_owed(self) -> bool:
        """Whether live frames have had their share, so that the next item goes before any more of them."""
        return bool(self._items) and self._live_bytes >= (HISTORY_SHARE - 1) * self._items[0][2]

    def take(self) -> Item:
        """Remove and return the next item."""
        frame, item, size = self._items.popleft()
        self.bytes -= size
        self._live_bytes = max(0, self._live_bytes - (HISTORY_SHARE - 1) * size) if self._items else 0
        if isinstance(frame, Fetched):
            self._fetched.discard(frame.ticket)
        elif isinstance(frame, Knowledge) and frame.base < frame.upto:
            # Where two that wait overlap, the range goes with the first of them: it could be asked for again.
            ranges = self._ranges.get((frame.pubend, frame.version), RangeSet())
            ranges.remove(frame.base, frame.upto)
            if not ranges:
                self._ranges.pop((frame.pubend, frame.version), None)
        return item

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._items)
