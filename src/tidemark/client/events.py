"""What a subscriber gets: events, gaps, and whole batches of events.

An Event is a row of the batch in which it was delivered: its fields are read from the bytes when they are
asked for, and the event keeps that batch in memory as long as it lives. Copy out what is to be kept for long.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from tidemark.client.subscribing.inbox import InboxCursor, InboxEntry
from tidemark.client.topics import ClientTopics
from tidemark.message.batches.batch import EventBatch, Shape
from tidemark.message.batches.columns import Column, Decimals, Spans
from tidemark.message.batches.reader import BatchColumns
from tidemark.message.batches.trace_context import publisher_of, traceparent_of
from tidemark.message.types import Atomic, Kind
from tidemark.ticks import CheckpointToken
from tidemark.wire.frames import Topic

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.client.subscribing.session import SubscriptionSession

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Characters of a field's value that the repr of an event shows.
REPR_CHARS_MAX = 60


@dataclass(frozen=True, slots=True)
class Gap:
    """Events with ticks in `(base, upto]` of a pubend that will not be delivered, if there were any.

    The `reason` is "released" if brokers have released the events before the subscriber got them,
    "reconnected" if a subscription that is not durable was away, "not kept" if this broker had kept no place
    for the subscriber, and "damaged" if the event at `upto` cannot be decoded.
    """

    #: the event stream in which the gap is
    pubend: str
    #: the last tick before the gap
    base: int
    #: the last tick of the gap
    upto: int
    #: "released", "reconnected", "not kept" or "damaged"
    reason: str
    #: the token of a subscriber that has consumed everything up to the end of this gap
    checkpoint: CheckpointToken


class Event(Mapping[str, Any]):
    """One event: a mapping of its fields, with the headers as attributes.

    `event["price"]` is a field, `event["legs.first.venue"]` a field further inside, `dict(event)` all of
    them. Two events are equal if they are the same event: of the same pubend, at the same tick. An event is
    equal to another mapping that has the same fields. An event can be pickled.
    """

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: EventRows, row: int) -> None:
        """For subscriptions, which make events."""
        self._rows = rows
        self._row = row

    @property
    def topic(self) -> str:
        """The topic that the event was published to."""
        return self._rows.shape(self._row).topic

    @property
    def pubend(self) -> str:
        """The name of the pubend: the event stream that the event is in."""
        return self._rows.pubend

    @property
    def tick(self) -> int:
        """The place in the pubend, unique there: microseconds since 1970, about the time of publishing."""
        return int(self._rows.batch.ticks[self._row])

    @property
    def time(self) -> datetime:
        """The tick as a time in UTC."""
        return _EPOCH + timedelta(microseconds=self.tick)

    @property
    def key(self) -> bytes:
        """The key that the event was published with, b"" without one."""
        return self._rows.batch.key(self._row)

    @property
    def priority(self) -> int:
        """The priority that the event was published with, from 0 to 9; 4 unless the publisher chose one."""
        return int(self._rows.batch.prelude("priority")[self._row])

    @property
    def publisher(self) -> str:
        """The name of the publisher: given by the application, or made by its client."""
        return publisher_of(self._named_publisher)

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that the event carries from its publisher; None if it carries none."""
        return traceparent_of(self._named_publisher)

    @property
    def _named_publisher(self) -> str:
        """The publisher as the batch names it."""
        batch = self._rows.batch
        return batch.publishers[int(batch.prelude("publisher")[self._row])]

    @property
    def value(self) -> dict[str, Any]:
        """All fields as a dict: as published in an open topic, in the newest version of a declared topic."""
        shape = self._rows.shape(self._row)
        return cast(dict[str, Any], self._rows.topics.decode(shape, self._rows.message(self._row)))

    def __getitem__(self, path: str) -> Any:
        """One field, without decoding the others; None if this event lacks the field.

        KeyError if no event of the topic can have the field.
        """
        shape = self._rows.shape(self._row)
        return self._rows.topics.accessor(shape, path)(self._rows.message(self._row))

    def get(self, path: str, default: Any = None) -> Any:
        """One field; `default` if this event lacks the field, or no event of the topic can have it."""
        try:
            found = self[path]
        except KeyError:
            return default
        return default if found is None else found

    def __iter__(self) -> Iterator[str]:
        """The names of the fields, as in `value`."""
        return iter(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __contains__(self, path: object) -> bool:
        """Whether `path` is one of the names in `value`, or leads to a field inside that is not None."""
        return path in self.value or (isinstance(path, str) and "." in path and self.get(path) is not None)

    def items(self) -> ItemsView[str, Any]:
        """The names and values of all fields, decoded once."""
        return self.value.items()

    def values(self) -> ValuesView[Any]:
        """The values of all fields, decoded once."""
        return self.value.values()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Event):
            return self.tick == other.tick and self.pubend == other.pubend
        return self.value == other if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.pubend, self.tick))

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, self._rows.pickled(self._row)

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of a subscriber that has consumed this event and everything before it."""
        return self._rows.checkpoint(self._row)

    @property
    def _position(self) -> tuple[str, int]:
        """The pubend, and the tick up to which it is consumed with this event and the silence behind it."""
        return self._rows.pubend, self._rows.cursor.positions[self._row]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_shortened(value)}" for name, value in self.items())
        return f"<Event of {self.topic} at {self.pubend}:{self.tick}: {fields}>"


def _shortened(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= REPR_CHARS_MAX else f"{shown[: REPR_CHARS_MAX - 3]}..."


class EventRows:
    """The events of one entry of an inbox. Arrays that are read once per event become plain lists here."""

    __slots__ = ("_bounds", "_data", "_of_row", "batch", "cursor", "pubend", "session", "topics")

    def __init__(
        self, cursor: InboxCursor, topics: ClientTopics, session: SubscriptionSession | None = None
    ) -> None:
        """`session` is that of the subscription; None for an event that was unpickled."""
        assert cursor.entry.batch is not None
        self.cursor = cursor
        self.session = session
        self.topics = topics
        self.pubend = cursor.entry.pubend
        self.batch: EventBatch = cursor.entry.batch
        self._bounds: tuple[list[int], list[int]] | None = None
        self._data = self.batch.body.data
        self._of_row: list[int] | None = (
            None if len(self.batch.shapes) == 1 else self.batch.prelude("shape").tolist()
        )

    def shape(self, row: int) -> Shape:
        """The topic and schema of the event in `row`."""
        return self.batch.shapes[0 if self._of_row is None else self._of_row[row]]

    def message(self, row: int) -> bytes:
        """The encoded fields of the event in `row`."""
        if self._bounds is None:
            self._bounds = self.batch.message_starts.tolist(), self.batch.message_ends.tolist()
        starts, ends = self._bounds
        return bytes(self._data[starts[row] : ends[row]])

    def checkpoint(self, row: int) -> CheckpointToken:
        """The token of a subscriber that has consumed everything up to `row`."""
        return CheckpointToken({**self.cursor.before, self.pubend: self.cursor.positions[row]})

    def pickled(self, row: int) -> tuple[Any, ...]:
        """What `_unpickled` makes the event in `row` of: the row as a batch of its own, and its schemas."""
        topic = self.topics.excerpt(self.shape(row))
        alone = self.batch.slice(row, row + 1)
        base = self.cursor.position(row)
        return topic, bytes(alone.data), self.pubend, base, self.cursor.positions[row], self.cursor.before


def _unpickled(topic: Topic, data: bytes, pubend: str, base: int, upto: int, before: dict[str, int]) -> Event:
    topics = ClientTopics(lambda _: None)
    topics.answered(topic)
    entry = InboxEntry(pubend, base, upto, EventBatch.parse(data))
    return Event(EventRows(InboxCursor(entry, before), topics), 0)


class Batch:
    """All events for the subscriber in `(base, upto]` of a pubend, as arrays.

    `len(batch)` is the number of events; iterating over the batch gives them one by one.
    """

    def __init__(self, rows: EventRows, first: int = 0) -> None:
        """For subscriptions, which make batches. The rows before `first` were handed out one by one."""
        self._rows = rows
        self._first = first
        self._batch = rows.batch if first == 0 else rows.batch.slice(first, rows.batch.count)

    def __len__(self) -> int:
        return self._batch.count

    def __iter__(self) -> Iterator[Event]:
        """The events one by one."""
        return (Event(self._rows, row) for row in range(self._first, self._rows.batch.count))

    @property
    def pubend(self) -> str:
        """The name of the pubend: the event stream that the events are in."""
        return self._rows.pubend

    @property
    def base(self) -> int:
        """The last tick before the batch."""
        return self._rows.cursor.position(self._first)

    @property
    def upto(self) -> int:
        """The last tick that the batch accounts for: the last event's, or that of the silence behind it."""
        return self._rows.cursor.entry.upto

    @property
    def ticks(self) -> NDArray[np.int64]:
        """ticks[row], strictly increasing: microseconds since 1970."""
        return self._batch.ticks

    @property
    def checkpoint(self) -> CheckpointToken:
        """The token of a subscriber that has consumed everything up to the end of this batch."""
        return CheckpointToken({**self._rows.cursor.before, self.pubend: self.upto})

    @property
    def _position(self) -> tuple[str, int]:
        """The pubend, and the tick up to which it is consumed with this batch."""
        return self.pubend, self.upto

    @cached_property
    def _columns(self) -> BatchColumns:
        """The fields as columns, with a mask of where they are present."""
        return self._rows.topics.reader(self._batch).columns(self._batch)

    def column(self, path: str) -> NDArray[Any]:
        """One field of all events, or one of the headers.

        Headers are `_topic`, `_pubend`, `_tick`, `_time`, `_key`, `_priority` and `_publisher`. Numbers,
        booleans and times (datetime64) are arrays of their own type, all else are arrays of objects. If some
        events lack the field the result is a masked array. KeyError if no event of these topics can have it.
        """
        if path == "_pubend":
            return _objects([self.pubend] * len(self))
        if path == "_key":
            return _objects([self._batch.key(row) for row in range(len(self))])
        if path == "_time":
            return self.ticks.view("M8[us]")
        column = self._columns.named(path)
        values = _values(column)
        if column.valid is None or column.valid.all():
            return values
        return np.ma.MaskedArray(values, mask=~column.valid)

    def to_arrow(self, names: Sequence[str] | None = None) -> pa.RecordBatch:
        """The fields and headers as an Arrow record batch: all, or those in `names`. Needs pyarrow."""
        try:
            from tidemark.message.foreign.arrow.batches import to_record_batch
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"to_arrow() needs {error.name}, which is not installed: pip install 'tidemark[spark]'",
                name=error.name,
            ) from None
        return to_record_batch(self._columns, names)

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
