"""Archives made by hand, round by round, without a broker; and subscribers that take what they give."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tidemark.message.batches.batch import BatchBuilder, EventBatch, Shape
from tidemark.message.schema import Schema
from tidemark.message.topic_selector import TopicSelector
from tidemark.spark.archive.layout import ArchiveLayout, fields_of
from tidemark.spark.archive.plan import RoundPart
from tidemark.spark.archive.state import ArchiveState, ArchiveTopics, save_state, save_topics
from tidemark.spark.archive.table import ArchiveTable, root_of
from tidemark.spark.archive.writer import PartWriter
from tidemark.spark.locations import Place, folder_at
from tidemark.ticks import CheckpointToken, Range
from tidemark.wire.answers import TopicStatus
from tidemark.wire.frames import Line

SCHEMA = Schema.parse("[n: int, kind: int]")
TOPICS = ("news.local", "news.world", "sports")

#: topic, tick, n, kind
Event = tuple[str, int, int, int]


class SmallArchive:
    """An archive that gets the events it is given."""

    def __init__(self, path: Place) -> None:
        self.path = path
        described = [TopicStatus(name, False, (SCHEMA.text,)) for name in TOPICS]
        self._topics = ArchiveTopics(described)
        self._layout = ArchiveLayout().extended(fields_of(SCHEMA).items())
        roots = sorted({root_of(name) for name in TOPICS})
        self._tables = {root: ArchiveTable.to_write(path, root, self._layout) for root in roots}
        self.state = ArchiveState()
        save_topics(path, self._topics)
        save_state(path, self.state)

    def add_time(self) -> None:
        """From now on files have the time of events in a column."""
        self._layout = self._layout.timed()
        self._tables = {root: ArchiveTable.to_write(self.path, root, self._layout) for root in self._tables}

    def round(self, covered: dict[str, int], events: dict[str, list[Event]]) -> None:
        """Write one more round: a file for each first level of topic names that has events."""
        batch = self.state.batch + 1
        layouts = dict.fromkeys(self._tables, self._layout.to_bytes())
        part = RoundPart(folder_at(self.path), batch, 0, (), self._topics.described, layouts, {})
        writer = PartWriter(part, self._topics.schemas)
        for pubend, some in sorted(events.items()):
            if some:
                writer.add(pubend, batch_of(some))
        for each in writer.close():
            self._tables[each.root].add([each], covered, {})
        token = self.state.covered.merge(CheckpointToken(covered))
        self.say(replace(self.state, batch=batch, covered=token))

    def say(self, state: ArchiveState) -> None:
        """Save this state of the archive."""
        save_state(self.path, state)
        self.state = state


def batch_of(events: Sequence[Event]) -> EventBatch:
    builder = BatchBuilder()
    for topic, _, n, kind in events:
        message = SCHEMA.encode({"n": n, "kind": kind})
        builder.add(Shape(topic, SCHEMA.fingerprint), message, publisher=f"p{n % 3}", key=b"k" * (n % 4))
    batch = builder.build()
    batch.fill_ticks(np.array([tick for _, tick, _, _ in events], np.int64))
    return batch


class Taker:
    """A recall whose subscriber takes everything, unless a test lets it stand still."""

    def __init__(self, pubend: str, lines: Sequence[Line], base: int, upto: int) -> None:
        self.pubend = pubend
        self.lines = tuple(lines)
        self.position, self.upto = base, upto
        self.is_over = False
        self.is_still = False
        self.batches: list[EventBatch] = []
        self.gone: list[Range] = []
        self.parts = 0
        self._moved = asyncio.Event()

    @property
    def got(self) -> list[tuple[int, int]]:
        """tick and n of every event, as they came."""
        return [
            (int(tick), SCHEMA.decode(batch.message(row))["n"])
            for batch in self.batches
            for row, tick in enumerate(batch.ticks)
        ]

    def has_room(self, size: int) -> bool:
        return not self.is_still or size == 0

    def go_on(self) -> None:
        self.is_still = False
        self._moved.set()

    def end(self) -> None:
        self.is_over = True
        self._moved.set()

    async def granted(self) -> None:
        if not self.is_over:
            await self._moved.wait()

    async def answer(self, upto: int, batch: EventBatch | None = None, gone: Sequence[Range] = ()) -> bool:
        while not self.is_over and not self.has_room(0 if batch is None else len(batch.body)):
            await self.granted()
        if self.is_over:
            return False
        assert self.position < upto <= self.upto
        if batch is not None:
            assert batch.count
            assert self.position < batch.ticks[0]
            assert batch.ticks[-1] <= upto
            self.batches.append(batch)
        for low, high in gone:
            assert self.position <= low < high <= upto
        self.gone += gone
        self.parts += 1
        self.position = upto
        self.is_over = upto == self.upto
        return True


def line(pattern: str = ">", selector: str = "", base: int = 0, upto: int = 1_000) -> Line:
    return Line(TopicSelector(pattern, selector), base, upto)


def taker(pubend: str, *lines: Line, **more: Any) -> Taker:
    return Taker(pubend, lines, more.get("base", lines[0].base), more.get("upto", lines[-1].upto))
