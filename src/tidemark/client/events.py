"""What a subscriber gets: events, gaps, and whole batches of events.

An Event is a row of the batch it came in: its fields are read from the bytes when asked for, and it keeps
that batch in memory as long as it lives. Copy out what is to be kept for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.client.subscribing.inbox import InboxCursor
from tidemark.client.topics import ClientTopics
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.columns import Column, Decimals, Spans
from tidemark.message.batches.reader import BatchColumns
from tidemark.message.types import Atomic, Kind
from tidemark.ticks import CheckpointToken

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Gap:
    """What there was in `(base, upto]` of the pubend will not come.

    `reason`: "released", the brokers have let it go; "reconnected", a subscription that is not durable was
    away; "not kept", this broker did not keep a place for the subscriber.
    """

    pubend: str
    base: int
    upto: int
    reason: str
    checkpoint: CheckpointToken


class Event:
    """One event. `event["price"]` is a field, `event["legs.first.venue"]` one further inside."""

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: EventRows, row: int) -> None:
        self._rows = rows
        self._row = row

    @property
    def topic(self) -> str:
        """The topic it was published to."""
        return self._rows.shape(self._row).topic

    @property
    def pubend(self) -> str:
        """The stream it is in."""
        return self._rows.pubend

    @property
    def tick(self) -> int:
        """Its place in that stream, unique there: microseconds since 1970, about when it was published."""
        return int(self._rows.batch.ticks[self._row])

    @property
    def time(self) -> datetime:
        """The tick as a time in UTC."""
        return _EPOCH + timedelta(microseconds=self.tick)

    @property
    def key(self) -> bytes:
        """The key that it was published with, b"" without one."""
        return self._rows.batch.key(self._row)

    @property
    def priority(self) -> int:
        """0 to 9."""
        return int(self._rows.batch.prelude("priority")[self._row])

    @property
    def publisher(self) -> str:
        """Who published it."""
        batch = self._rows.batch
        return batch.publishers[int(batch.prelude("publisher")[self._row])]

    @property
    def value(self) -> dict[str, Any]:
        """All fields: of an open topic as they were published, of a declared one in its newest version."""
        shape = self._rows.shape(self._row)
        return cast(dict[str, Any], self._rows.topics.decode(shape, self._rows.message(self._row)))

    def __getitem__(self, path: str) -> Any:
        """One field, without decoding the others; None where this event lacks it.

        KeyError when no event of the topic can have it.
        """
        shape = self._rows.shape(self._row)
        return self._rows.topics.accessor(shape, path)(self._rows.message(self._row))

    def get(self, path: str, default: Any = None) -> Any:
        """One field, or `default` where this event lacks it, or no event can have it."""
        try:
            found = self[path]
        except KeyError:
            return default
        return default if found is None else found

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of a subscriber that has consumed all up to this event, and this event."""
        return self._rows.checkpoint(self._row)

    @property
    def position(self) -> tuple[str, int]:
        """The pubend and how far it is consumed with this event: its tick, or the silence right behind it."""
        return self._rows.pubend, self._rows.cursor.positions[self._row]

    def __repr__(self) -> str:
        return f"<Event of {self.topic} at {self.pubend}:{self.tick}>"


class EventRows:
    """The events of one piece. What is read per event is turned into plain lists once."""

    __slots__ = ("_bounds", "_data", "_of_row", "batch", "cursor", "pubend", "topics")

    def __init__(self, cursor: InboxCursor, topics: ClientTopics) -> None:
        assert cursor.piece.batch is not None
        self.cursor = cursor
        self.topics = topics
        self.pubend = cursor.piece.pubend
        self.batch: EventBatch = cursor.piece.batch
        self._bounds: tuple[list[int], list[int]] | None = None
        self._data = self.batch.body.data
        self._of_row: list[int] | None = (
            None if len(self.batch.shapes) == 1 else self.batch.prelude("shape").tolist()
        )

    def shape(self, row: int) -> Shape:
        """The topic and schema of a row."""
        return self.batch.shapes[0 if self._of_row is None else self._of_row[row]]

    def message(self, row: int) -> bytes:
        """The bytes of a row's message."""
        if self._bounds is None:
            self._bounds = self.batch.message_starts.tolist(), self.batch.message_ends.tolist()
        starts, ends = self._bounds
        return bytes(self._data[starts[row] : ends[row]])

    def checkpoint(self, row: int) -> CheckpointToken:
        """The token after a row."""
        return CheckpointToken({**self.cursor.before, self.pubend: self.cursor.positions[row]})


class Batch:
    """All there is for the subscriber in `(base, upto]` of a pubend, as arrays."""

    def __init__(self, rows: EventRows, first: int = 0) -> None:
        """`first`: rows before it were handed out one by one."""
        piece = rows.cursor.piece
        self._rows = rows
        self._first = first
        self.batch = rows.batch if first == 0 else rows.batch.slice(first, rows.batch.count)
        self.pubend = rows.pubend
        self.base = rows.cursor.position(first)
        self.upto = piece.upto

    def __len__(self) -> int:
        return self.batch.count

    def __iter__(self) -> Iterator[Event]:
        """The events one by one."""
        return (Event(self._rows, row) for row in range(self._first, self._rows.batch.count))

    @property
    def ticks(self) -> NDArray[np.int64]:
        """ticks[row], strictly increasing."""
        return self.batch.ticks

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of a subscriber that has consumed all up to the end of this batch."""
        return CheckpointToken({**self._rows.cursor.before, self.pubend: self.upto})

    @property
    def position(self) -> tuple[str, int]:
        """The pubend and how far it is consumed with this batch."""
        return self.pubend, self.upto

    @cached_property
    def columns(self) -> BatchColumns:
        """The fields as columns, with a mask of where they are present."""
        return self._rows.topics.reader(self.batch).columns(self.batch)

    def column(self, path: str) -> NDArray[Any]:
        """A field of all events: numbers, booleans and times (datetime64) as such, all else as objects.

        Where some events lack the field it is a masked array.
        """
        column = self.columns.column(tuple(path.split(".")))
        values = _values(column)
        if column.valid is None or column.valid.all():
            return values
        return np.ma.MaskedArray(values, mask=~column.valid)

    def to_arrow(self, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The fields (all, or those named) and headers as an Arrow record batch; needs pyarrow."""
        from tidemark.message.foreign.arrow.batches import to_record_batch

        return to_record_batch(self.columns, names)

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} events of {self.pubend} in ({self.base}, {self.upto}]>"


def _values(column: Column) -> NDArray[Any]:
    kind = column.type.kind if isinstance(column.type, Atomic) else None
    if isinstance(column.values, np.ndarray):
        return column.values.view("M8[us]") if kind is Kind.TIMESTAMP else column.values
    if isinstance(column.values, Spans):
        raw = column.values.tolist()
        return _objects([each.decode() for each in raw] if kind is Kind.STRING else raw)
    if isinstance(column.values, Decimals):
        # Exact, whatever the context of the caller's decimals says.
        from decimal import Context, Decimal

        exact, scale = Context(prec=40), column.values.scale
        return _objects([Decimal(each).scaleb(-scale, exact) for each in column.values.tolist()])
    return _objects(column.values)


def _objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), object)
    array[:] = values
    return array
