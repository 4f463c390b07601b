"""A request: what one subscriber wants from the archive, and the answer to it, in parts.

Ranges arrive as scans read them. Parts of the answer leave as the subscriber takes them, in the order of the
ticks, each beginning where the last one ended. Silence is sent along with the next events, or at the end of
what has been read, so that a subscriber that wants little is not sent a frame for every slice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidemark.client.wakeup import Wakeup
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Ints
from tidemark.spark.deep.spool import SliceReader, Spool
from tidemark.spark.deep.tasks import WantedLine
from tidemark.ticks import Range, within
from tidemark.wire.frames import Line

#: Gaps in one part of an answer; a frame holds some more.
GAPS_MAX = 1_000


class OpenRecall(Protocol):
    """What a request needs of a recall that is under way: see `client.recalls`."""

    pubend: str
    upto: int
    position: int
    is_over: bool

    @property
    def lines(self) -> tuple[Line, ...]:
        """What the subscriber wants."""

    def has_room(self, size: int) -> bool:
        """May so many bytes be sent now?"""

    async def answer(self, upto: int, batch: EventBatch | None = None, gone: Sequence[Range] = ()) -> bool:
        """Send all there is up to `upto`; False if the recall is over. Waits until there is room."""

    async def granted(self) -> None:
        """Return when more may be sent, or the recall is over."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What a scan has read for a request: the events of `(base, upto]`, of which some ranges may be gone."""

    base: int
    upto: int
    gone: tuple[Range, ...] = ()
    #: has the events; None for silence
    reader: SliceReader | None = None

    @property
    def is_silent(self) -> bool:
        """Is there neither an event nor a gap?"""
        return self.reader is None and not self.gone


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """A part of an answer: everything from where the last part ended up to `upto`."""

    upto: int
    batch: EventBatch | None = None
    gone: tuple[Range, ...] = ()


class Request:
    """A recall that is being answered. It belongs to one scan at a time, which numbers its lines."""

    def __init__(self, recall: OpenRecall, spool: Spool) -> None:
        self.recall = recall
        self._spool = spool
        #: the number of the first line in the scan, and the lines as the scan has them
        self._first = 0
        self._lines: tuple[WantedLine, ...] = ()
        #: read, and not sent yet
        self._ranges: deque[ReadRange] = deque()
        self._is_last = True
        self._wakeup = Wakeup()
        #: monotonic time since when the archive has been behind what the request wants; None if it is not
        self.waits_since: float | None = None

    @property
    def pubend(self) -> str:
        """The pubend whose history is wanted."""
        return self.recall.pubend

    @property
    def is_over(self) -> bool:
        """The recall is over: nobody waits for the rest."""
        return self.recall.is_over

    @property
    def is_loaded(self) -> bool:
        """Is there something that was read and has not been sent?"""
        return bool(self._ranges)

    def lines(self) -> tuple[WantedLine, ...]:
        """What the subscriber still wants, beyond the position that it has reached."""
        rest = (
            WantedLine(
                self.pubend,
                each.wanted,
                max(each.base, self.recall.position),
                each.upto,
            )
            for each in self.recall.lines
        )
        return tuple(each for each in rest if each.base < each.upto)

    # What a scan calls.

    def begin(self, first: int, lines: tuple[WantedLine, ...]) -> None:
        """A scan begins to read for the request; it gives these lines the numbers from `first` on."""
        self._first, self._lines = first, lines
        self._is_last = False

    def put(self, read: ReadRange) -> None:
        """A range was read. If it has nothing for the request it is silence, and joins the one before."""
        numbers = range(self._first, self._first + len(self._lines))
        if read.reader is not None and read.reader.lines.keys().isdisjoint(numbers):
            read = ReadRange(read.base, read.upto, read.gone)
        last = self._ranges[-1] if self._ranges else None
        if read.reader is not None:
            read.reader.readers += 1
        elif last is not None and last.is_silent and read.is_silent and last.upto == read.base:
            # `_answer` does not wait while it is at a silent range, so that this one is not being sent.
            read = ReadRange(self._ranges.pop().base, read.upto)
        self._ranges.append(read)
        self._wakeup.wake()

    def finish(self) -> None:
        """The scan reads nothing more for the request."""
        self._is_last = True
        self._wakeup.wake()

    def drop(self) -> None:
        """Forget what was read and has not been sent."""
        while self._ranges:
            self._done(self._ranges.popleft())

    # The answer.

    async def run(self) -> None:
        """Answer with what is read, until the scan reads nothing more or the recall is over."""
        try:
            while not self.is_over:
                if self._ranges:
                    await self._answer()
                elif self._is_last:
                    return
                else:
                    await self._wakeup.wait()
        finally:
            self.drop()

    async def _answer(self) -> None:
        silent: int | None = None
        while self._ranges and not self.is_over:
            read = self._ranges[0]
            for part in self.parts(read):
                silent = part.upto
                if part.batch is not None or part.gone:
                    silent = None
                    if not await self.recall.answer(part.upto, part.batch, part.gone):
                        return
            self._done(self._ranges.popleft())
        if silent is not None and not self.is_over:
            await self.recall.answer(silent)

    def parts(self, read: ReadRange) -> Iterator[AnswerPart]:
        """A range in parts of bounded size; the last part reaches the end of the range."""
        base = max(read.base, self.recall.position)
        gone = within(read.gone, base, read.upto)
        for first in range(0, len(gone), GAPS_MAX):
            some = gone[first : first + GAPS_MAX]
            upto = some[-1][1] if first + GAPS_MAX < len(gone) else read.upto
            yield from self._parts(read.reader, base, upto, tuple(some))
            base = upto
        if not gone:
            yield from self._parts(read.reader, base, read.upto, ())

    def _parts(
        self, reader: SliceReader | None, base: int, upto: int, gone: tuple[Range, ...]
    ) -> Iterator[AnswerPart]:
        rows = self._rows(reader, base, upto)
        if reader is None or not len(rows):
            yield AnswerPart(upto, None, gone)
            return
        at = base
        for some in reader.parts(rows):
            batch = reader.batch(some)
            last = int(batch.ticks[-1])
            reached = upto if some[-1] == rows[-1] else last
            yield AnswerPart(reached, batch, tuple(within(gone, at, reached)))
            at = reached

    def _rows(self, reader: SliceReader | None, base: int, upto: int) -> Ints:
        found = [np.zeros(0, np.int64)]
        if reader is not None:
            for number, line in enumerate(self._lines, self._first):
                low, high = max(base, line.base), min(upto, line.upto)
                if low < high:
                    found.append(reader.rows(number, low, high))
        return np.concatenate(found)

    def _done(self, read: ReadRange) -> None:
        if read.reader is not None:
            self._spool.release(read.reader)
