"""What leaves first where a link is slow, and what may be dropped there.

Frames to a neighbour are of two classes. *History* answers questions: knowledge that answers a nack, and
Fetched. Everything else is *live*: first-time knowledge, questions, and what brokers say of themselves. Live
frames go first, and history has HISTORY_SHARE of a link that live frames would fill. Within a class frames
keep their order. History may therefore arrive after live frames that were sent later, which the protocol
allows of all knowledge (docs/architecture.md#what-may-overtake-what).
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from tidemark.wire.frames import (
    Claim,
    Fetched,
    Frame,
    Heard,
    Hello,
    Interest,
    Knowledge,
    Links,
    Overlay,
    Release,
    Topic,
    Unfollow,
)

#: Frames that are sent to a slow neighbour too: without them it would be wrong about this broker. It asks
#: again for all others.
NEVER_DROPPED = frozenset((Hello, Links, Interest, Unfollow, Claim, Topic, Release, Heard, Overlay))
#: One byte in so many is of history while both classes wait.
HISTORY_SHARE = 8

Item = TypeVar("Item")


def is_history(frame: Frame) -> bool:
    """Whether `frame` answers a question, and so gives way to all frames that do not."""
    kind = type(frame)
    return kind is Fetched or (kind is Knowledge and not frame.first)  # type: ignore[union-attr]


class HistoryQueue(Generic[Item]):
    """History that waits for live frames, in order; the owner sends live frames itself, and reports them."""

    __slots__ = ("_items", "_live_bytes", "bytes")

    def __init__(self) -> None:
        self._items: deque[tuple[Item, int]] = deque()
        #: the bytes of all items that wait
        self.bytes = 0
        #: bytes of live frames that were sent since history was, while history waited
        self._live_bytes = 0

    def put(self, item: Item, size: int) -> None:
        """Let an item of `size` bytes wait."""
        self._items.append((item, size))
        self.bytes += size

    def passed(self, size: int) -> None:
        """A live frame of `size` bytes was sent before what waits."""
        self._live_bytes += size if self._items else 0

    @property
    def is_owed(self) -> bool:
        """Whether live frames have had their share, so that the next item goes before any more of them."""
        return bool(self._items) and self._live_bytes >= (HISTORY_SHARE - 1) * self._items[0][1]

    def take(self) -> Item:
        """Remove and return the next item."""
        item, size = self._items.popleft()
        self.bytes -= size
        self._live_bytes = max(0, self._live_bytes - (HISTORY_SHARE - 1) * size) if self._items else 0
        return item

    def clear(self) -> None:
        """Forget everything that waits."""
        self._items.clear()
        self.bytes = self._live_bytes = 0

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._items)
