"""A request: what one subscriber wants from the archive, and the answer to it in parts.

Slices arrive as scans read them; parts leave as the subscriber takes them, in the order of the ticks, each
going on where the last ended. What is silent is told with what comes next, or at the end of what has been
read, so that a subscriber who wants little is not sent a frame for every slice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.columns import Ints
from tidemark.spark.deep.spool import SliceReader, Spool
from tidemark.spark.deep.tasks import WantedLine, within
from tidemark.ticks.tick import Range
from tidemark.wire.frames import Line

#: Gaps told in one part; a frame holds some more.
GAPS_MAX = 1_000


class OpenRecall(Protocol):
    """What is needed of a recall: see `client.recalls`."""

    pubend: str
    upto: int
    position: int
    is_over: bool

    @property
    def lines(self) -> tuple[Line, ...]:
        """What is wanted."""

    def has_room(self, size: int) -> bool:
        """May so much be sent?"""

    async def answer(self, upto: int, batch: EventBatch | None = None, gone: Sequence[Range] = ()) -> bool:
        """All there is up to there."""

    async def granted(self) -> None:
        """More may be sent, or nobody waits."""


@dataclass(frozen=True, slots=True)
class ReadRange:
    """What a scan has read for a request: `(base, upto]`, of which some may be gone."""

    base: int
    upto: int
    gone: tuple[Range, ...] = ()
    #: where the events are; None for silence
    reader: SliceReader | None = None


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """All there is up to a tick."""

    upto: int
    batch: EventBatch | None = None
    gone: tuple[Range, ...] = ()


class Request:
    """A recall at work. It belongs to one scan at a time, which knows its lines by their numbers."""

    def __init__(self, recall: OpenRecall, spool: Spool) -> None:
        self.recall = recall
        self._spool = spool
        #: number of its first line in the scan, and the lines as the scan knows them
        self._first = 0
        self._lines: tuple[WantedLine, ...] = ()
        self._chunks: deque[ReadRange] = deque()
        self._is_last = True
        self._waiter: asyncio.Future[None] | None = None
        #: monotonic time since when the archive is to reach what it lacks
        self.waits_since: float | None = None

    @property
    def pubend(self) -> str:
        """Of which history is wanted."""
        return self.recall.pubend

    @property
    def is_over(self) -> bool:
        """Nobody waits for the rest."""
        return self.recall.is_over

    @property
    def is_loaded(self) -> bool:
        """There is something that was read and has not left."""
        return bool(self._chunks)

    def lines(self) -> tuple[WantedLine, ...]:
        """What it still wants."""
        rest = (
            WantedLine(
                self.pubend, each.pattern, each.selector, max(each.base, self.recall.position), each.upto
            )
            for each in self.recall.lines
        )
        return tuple(each for each in rest if each.base < each.upto)

    # A scan reads for it.

    def begin(self, first: int, lines: tuple[WantedLine, ...]) -> None:
        """A scan begins to read for it, and knows its lines by the numbers from `first` on."""
        self._first, self._lines = first, lines
        self._is_last = False

    def put(self, chunk: ReadRange) -> None:
        """Something was read."""
        if chunk.reader is not None:
            chunk.reader.readers += 1
        self._chunks.append(chunk)
        self._wake()

    def finish(self) -> None:
        """Nothing more will be read for it now."""
        self._is_last = True
        self._wake()

    def drop(self) -> None:
        """Forget what was read and has not left."""
        while self._chunks:
            self._done(self._chunks.popleft())

    # The answer.

    async def run(self) -> None:
        """Answer with what is read, until nothing more will be."""
        try:
            while not self.is_over:
                if self._chunks:
                    await self._answer()
                elif self._is_last:
                    return
                else:
                    await self._more()
        finally:
            self.drop()

    async def _answer(self) -> None:
        silent: int | None = None
        while self._chunks and not self.is_over:
            chunk = self._chunks[0]
            for part in self.parts(chunk):
                silent = part.upto
                if part.batch is not None or part.gone:
                    silent = None
                    if not await self.recall.answer(part.upto, part.batch, part.gone):
                        return
            self._done(self._chunks.popleft())
        if silent is not None and not self.is_over:
            await self.recall.answer(silent)

    def parts(self, chunk: ReadRange) -> Iterator[AnswerPart]:
        """What there is in a chunk, in parts of bounded size; the last reaches its end."""
        base = max(chunk.base, self.recall.position)
        gone = within(chunk.gone, base, chunk.upto)
        for first in range(0, len(gone), GAPS_MAX):
            some = gone[first : first + GAPS_MAX]
            upto = some[-1][1] if first + GAPS_MAX < len(gone) else chunk.upto
            yield from self._parts(chunk.reader, base, upto, tuple(some))
            base = upto
        if not gone:
            yield from self._parts(chunk.reader, base, chunk.upto, ())

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

    def _done(self, chunk: ReadRange) -> None:
        if chunk.reader is not None:
            self._spool.release(chunk.reader)

    async def _more(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
