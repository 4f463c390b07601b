"""What leaves first where a link is slow, and what may be dropped there.

Frames to a neighbour are of two classes. *History* answers questions: knowledge that answers a nack, and
Fetched. Everything else is *live*: first-time knowledge, questions, and what brokers say of themselves. Live
frames go first, and history has HISTORY_SHARE of a link that live frames would fill. Within a class frames
keep their order. History may therefore arrive after live frames that were sent later, which the protocol
allows of all knowledge (docs/architecture.md#what-may-overtake-what).

A neighbour may ask for what waits here to be sent to it, or is being sent, as an answer to an earlier
question or as first-time knowledge: nothing is sent twice because a line is thin. If the neighbour's interest
has changed meanwhile, the newer answer takes the place of the one that waits. And if it leaves a stream, what
it has asked for of that stream is not sent any more.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Generic, TypeVar

from tidemark.broker.streams.window import rows_within
from tidemark.ticks import RangeSet, within
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
#: An answer of which something waits already is cut into so many parts at the most, however often it does.
PARTS_MAX = 16
#: Of answers that are being sent so many are remembered, the newest: a thin line takes few at a time.
LEAVING_MAX = 16
#: The same of first-time knowledge with events, of which a burst may wait.
TOLD_MAX = 64
#: What an item takes in memory besides its own bytes, about: many small answers take more than they say.
ITEM_BYTES = 512

Item = TypeVar("Item")


def undroppable(frame: Frame) -> Frame | None:
    """Return what of `frame` is sent to a neighbour that does not keep up; None if it asks again for all.

    Returns `frame` itself if all of it is sent.
    """
    if not isinstance(frame, Together):
        return frame if type(frame) in NEVER_DROPPED else None
    kept = tuple(each for each in frame.frames if type(each) in NEVER_DROPPED)
    if len(kept) == len(frame.frames):
        return frame
    return Together(kept) if kept else None


def is_history(frame: Frame) -> bool:
    """Whether `frame` answers a question, and so gives way to all frames that do not."""
    kind = type(frame)
    return kind is Fetched or (kind is Knowledge and not frame.first)  # type: ignore[union-attr]


def is_question(frame: Frame) -> bool:
    """Whether a neighbour that is alive answers `frame` at once; if no answer comes, a Ping follows soon."""
    match frame:
        case Together(frames=frames):
            return any(map(is_question, frames))
        case Release(rows=rows):
            return any(row.asks for row in rows)
        case _:
            return type(frame) in QUESTIONS


def events_in(frame: Frame) -> int:
    """Return the number of events that a frame to a neighbour carries."""
    if type(frame) is Together:
        return sum(map(events_in, frame.frames))
    return frame.batch.count if isinstance(frame, Knowledge) and frame.batch is not None else 0


class HistoryQueue(Generic[Item]):
    """History that waits for live frames, in order; the owner sends live frames itself, and reports them."""

    __slots__ = (
        "_fetched",
        "_items",
        "_leaving",
        "_live_bytes",
        "_next",
        "_of_pubend",
        "_ranges",
        "_told",
        "bytes",
    )

    def __init__(self) -> None:
        #: number, ascending -> what waits: the frame, the form in which the owner sends it, and its bytes
        self._items: OrderedDict[int, tuple[Knowledge | Fetched, Item, int]] = OrderedDict()
        self._next = 0
        #: the bytes of all items that wait
        self.bytes = 0
        #: bytes of live frames that were sent since history was, while history waited
        self._live_bytes = 0
        #: pubend -> the numbers of the items that tell of it
        self._of_pubend: dict[str, dict[int, None]] = {}
        #: pubend -> version -> the ranges of the knowledge that waits; the tickets of the Fetched that wait
        self._ranges: dict[str, dict[int, RangeSet]] = {}
        self._fetched: set[int] = set()
        #: what was taken and may still be being sent, and how many bytes are gone when it has been sent
        self._leaving: deque[tuple[Knowledge | Fetched, int]] = deque(maxlen=LEAVING_MAX)
        #: first-time knowledge that may still wait or be being sent: its pubend, version and range, and how
        #: many bytes are gone when it has been sent
        self._told: deque[tuple[str, int, tuple[int, int], int]] = deque(maxlen=TOLD_MAX)

    @property
    def held_bytes(self) -> int:
        """About how much memory all items take."""
        return self.bytes + ITEM_BYTES * len(self._items)

    def rest(self, frame: Frame, gone: int = 0) -> list[Knowledge | Fetched]:
        """Return what of an answer neither waits nor is being sent: all, none, or a few parts.

        `gone` is how many bytes of the link, live frames included, have been sent so far.
        """
        while self._leaving and self._leaving[0][1] <= gone:
            self._leaving.popleft()
        while self._told and self._told[0][-1] <= gone:
            self._told.popleft()
        if isinstance(frame, Fetched):
            is_leaving = any(
                type(each) is Fetched and each.ticket == frame.ticket for each, _ in self._leaving
            )
            return [] if is_leaving or frame.ticket in self._fetched else [frame]
        assert isinstance(frame, Knowledge)
        if frame.base == frame.upto:
            return [frame]
        whole = (frame.base, frame.upto)
        gaps = [whole]
        for ranges in self._as_complete(frame):
            gaps = [rest for gap in gaps for rest in ranges.few_gaps(*gap, PARTS_MAX)]
            if len(gaps) > PARTS_MAX:
                gaps[PARTS_MAX - 1 :] = [(gaps[PARTS_MAX - 1][0], gaps[-1][1])]
        return [frame] if gaps == [whole] else [_part(frame, *gap) for gap in gaps]

    def _as_complete(self, frame: Knowledge) -> Iterator[RangeSet]:
        """Yield the ticks of knowledge that waits or is being sent and is complete for as much as `frame` is.

        That is knowledge with its version of the interest or with a newer one.
        """
        of_version = self._ranges.get(frame.pubend, {})
        newer = (ranges for version, ranges in of_version.items() if version >= frame.version)
        yield from islice(newer, PARTS_MAX)
        leaving = [
            (each.base, each.upto)
            for each, _ in self._leaving
            if isinstance(each, Knowledge) and each.pubend == frame.pubend and each.version >= frame.version
        ]
        leaving += [
            told
            for pubend, version, told, _ in self._told
            if pubend == frame.pubend and version >= frame.version
        ]
        if leaving:
            yield RangeSet(leaving)

    def tell(self, frame: Frame, upto: int) -> None:
        """A live frame is on its way; it will be sent when `upto` bytes of the link are gone, or a bit later.

        What it tells of events for the first time is no part of an answer meanwhile.
        """
        for each in frame.frames if isinstance(frame, Together) else (frame,):
            if isinstance(each, Knowledge) and each.batch is not None:
                self._told.append((each.pubend, each.version, (each.base, each.upto), upto))

    def put(self, frame: Knowledge | Fetched, item: Item, size: int) -> None:
        """Let an item of `size` bytes wait: `frame`, in whatever form the owner sends it."""
        number = self._place(frame) if isinstance(frame, Knowledge) else None
        if number is None:
            number = self._next
            self._next += 1
        self._items[number] = frame, item, size
        self._of_pubend.setdefault(frame.pubend, {})[number] = None
        self.bytes += size
        if isinstance(frame, Fetched):
            self._fetched.add(frame.ticket)
        elif frame.base < frame.upto:
            of_version = self._ranges.setdefault(frame.pubend, {})
            of_version.setdefault(frame.version, RangeSet()).add(frame.base, frame.upto)

    def _place(self, frame: Knowledge) -> int | None:
        """Return the number of the first item that the answer `frame` supersedes; the others are removed.

        An answer supersedes those for the same ticks, or for some of them, with an older version of the
        interest: who asked for all of it again is served by the newer one. It goes in the place of the first,
        not behind all that waits, so that an interest that changes often does not keep answers from leaving.
        Returns None if there is no such item.
        """
        of_version = self._ranges.get(frame.pubend, {})
        if frame.base == frame.upto or all(version >= frame.version for version in of_version):
            return None
        older = [
            (number, waiting)
            for number in self._of_pubend[frame.pubend]
            if isinstance(waiting := self._items[number][0], Knowledge)
            and waiting.version < frame.version
            and frame.base <= waiting.base < waiting.upto <= frame.upto
        ]
        for at, (number, waiting) in enumerate(older):
            self.bytes -= self._items[number][2]
            self._withdraw(waiting)
            if at:
                del self._items[number], self._of_pubend[frame.pubend][number]
        return older[0][0] if older else None

    def _withdraw(self, frame: Knowledge) -> None:
        """The range of an answer does not wait any more."""
        # Where two that wait overlap, the range goes with the first of them: it could be asked for again.
        of_version = self._ranges[frame.pubend]
        ranges = of_version.get(frame.version, RangeSet())
        ranges.remove(frame.base, frame.upto)
        if not ranges:
            of_version.pop(frame.version, None)

    def passed(self, size: int) -> None:
        """A live frame of `size` bytes was sent before what waits."""
        self._live_bytes += size if self._items else 0

    @property
    def is_owed(self) -> bool:
        """Whether live frames have had their share, so that the next item goes before any more of them."""
        if not self._items:
            return False
        _, _, size = next(iter(self._items.values()))
        return self._live_bytes >= (HISTORY_SHARE - 1) * size

    def take(self, before: int = 0) -> Item:
        """Remove and return the next item, which is being sent once so many bytes `before` it are gone."""
        number, (frame, item, size) = self._items.popitem(last=False)
        self._leaving.append((frame, before + size))
        self.bytes -= size
        self._live_bytes = max(0, self._live_bytes - (HISTORY_SHARE - 1) * size) if self._items else 0
        numbers = self._of_pubend[frame.pubend]
        del numbers[number]
        if not numbers:
            self._forget(frame.pubend)
        if isinstance(frame, Fetched):
            self._fetched.discard(frame.ticket)
        elif frame.base < frame.upto and numbers:
            self._withdraw(frame)
        return item

    def drop(self, pubend: str) -> None:
        """Remove all that tells of a pubend: the neighbour takes it from another broker by now.

        This costs as much as was queued, and next to nothing if nothing was.
        """
        for number in self._of_pubend.get(pubend, ()):
            frame, _, size = self._items.pop(number)
            self.bytes -= size
            if isinstance(frame, Fetched):
                self._fetched.discard(frame.ticket)
        self._forget(pubend)
        others = (each for each in self._leaving if each[0].pubend != pubend)
        self._leaving = deque(others, maxlen=LEAVING_MAX)
        self._told = deque((each for each in self._told if each[0] != pubend), maxlen=TOLD_MAX)
        self._live_bytes = self._live_bytes if self._items else 0

    def _forget(self, pubend: str) -> None:
        """Nothing that tells of a pubend waits."""
        self._of_pubend.pop(pubend, None)
        self._ranges.pop(pubend, None)

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._items)


def _part(frame: Knowledge, base: int, upto: int) -> Knowledge:
    """Return what an answer tells of `(base, upto]`."""
    batch, damaged = rows_within(frame.batch, base, upto), tuple(within(frame.damaged, base, upto))
    return replace(frame, base=base, upto=upto, batch=batch, damaged=damaged)
