"""Hiding: events without the fields that a role hides, and topics without them (docs/security.md).

Events are stripped where they leave the broker for a client, after everything that a rule may look at has
been decided: what is matched, kept, passed on and counted is whole. All subscribers that share what is hidden
share one stripped batch. A topic is described to each client in the schemas that its events come in.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tidemark.access.rights import Hidden
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.hidden_fields import HiddenFields, without_fields
from tidemark.message.registry import Registry

#: Schemas for which it is kept how they are written without hidden fields, and the texts of what is left of
#: schemas, and topics for which it is kept what is hidden there.
FIELDS_MAX = 1_024
TEXTS_MAX = 16_384
TOPICS_MAX = 16_384


class Hiding:
    """Strips batches and schemas for all clients of a broker."""

    def __init__(self, registry: Registry) -> None:
        """`registry` has the topics that the broker knows; only `Topics` adds to them."""
        self._registry = registry
        self._fields: dict[tuple[int, tuple[str, ...]], HiddenFields] = {}
        #: the same -> the fingerprint and the text of what is left, also of schemas that nobody reads
        self._texts: dict[tuple[int, tuple[str, ...]], tuple[int, str]] = {}
        self._names: dict[tuple[Hidden, str], tuple[str, ...]] = {}

    def names(self, hidden: Hidden, topic: str) -> tuple[str, ...]:
        """Return the names of the fields that are hidden in a topic, sorted."""
        key = (hidden, topic)
        found = self._names.get(key)
        if found is None:
            if len(self._names) >= TOPICS_MAX:
                self._names.clear()
            names = {
                name
                for pattern, each in hidden
                if TopicPattern.parse(pattern).matches(topic)
                for name in each
            }
            found = self._names[key] = tuple(sorted(names))
        return found

    def unknown_from(self, hidden: Hidden, batch: EventBatch) -> int | None:
        """Return the first event that may have hidden fields and whose schema is not known; None if none."""
        unknown = [
            at
            for at, shape in enumerate(batch.shapes)
            if self.names(hidden, shape.topic) and shape.fingerprint not in self._registry.schemas
        ]
        if not unknown:
            return None
        rows = np.flatnonzero(np.isin(batch.prelude("shape"), unknown))
        return int(rows[0]) if len(rows) else None

    def stripped(self, hidden: Hidden, batch: EventBatch) -> EventBatch | None:
        """Return the events without what is hidden in their topics; None if none of them may be seen.

        An event that may have hidden fields, and whose schema is not known here or which is damaged, is left
        out: nothing can be taken out of it.
        """
        unknown = self.unknown_from(hidden, batch)
        if unknown is not None:
            seen = [
                not self.names(hidden, shape.topic) or shape.fingerprint in self._registry.schemas
                for shape in batch.shapes
            ]
            batch = batch.take(np.array(seen, np.bool_)[batch.prelude("shape")])
        needed = {
            at: fields
            for at, shape in enumerate(batch.shapes)
            if (names := self.names(hidden, shape.topic))
            and shape.fingerprint in self._registry.schemas
            and (fields := self._left(shape.fingerprint, names)).is_needed
        }
        if not batch.count:
            return None
        return without_fields(batch, needed) if needed else batch

    def texts(self, hidden: Hidden, topic: str, texts: Mapping[int, str], *, whole: bool) -> dict[int, str]:
        """Return the schemas of a topic, by fingerprint and oldest first, as its events come to a client.

        With `whole`, for who may publish or declare the topic, each is followed by the schema that is written
        in.
        """
        names = self.names(hidden, topic)
        if not names:
            return dict(texts)
        found: dict[int, str] = {}
        for fingerprint, text in texts.items():
            left = self._left_text(fingerprint, text, names)
            for number, each in (left, (fingerprint, text)) if whole else (left,):
                found.pop(number, None)  # the last one is the newest, so a known one moves to the end
                found[number] = each
        return found

    def _left_text(self, fingerprint: int, text: str, names: tuple[str, ...]) -> tuple[int, str]:
        if not any(name in text or not name.isidentifier() for name in names):
            return fingerprint, text
        found = self._texts.get((fingerprint, names))
        if found is None:
            if len(self._texts) >= TEXTS_MAX:
                self._texts.clear()
            left = HiddenFields(self._registry.schemas[fingerprint], names).schema
            found = self._texts[fingerprint, names] = (left.fingerprint, left.text)
        return found

    def _left(self, fingerprint: int, names: tuple[str, ...]) -> HiddenFields:
        found = self._fields.get((fingerprint, names))
        if found is None:
            if len(self._fields) >= FIELDS_MAX:
                self._fields.clear()
            found = HiddenFields(self._registry.schemas[fingerprint], names)
            self._fields[fingerprint, names] = found
        return found


class SharedPiece:
    """Events for several subscribers from whom the same fields are hidden; the fields are taken out once."""

    def __init__(self, hiding: Hiding, hidden: Hidden, batch: EventBatch) -> None:
        """`batch` has all events that any of the subscribers is told of."""
        self._ticks = batch.ticks
        self._stripped = hiding.stripped(hidden, batch)
        #: parts that were asked for, by identity, each with what is left of it
        self._parts: dict[int, tuple[EventBatch, EventBatch | None]] = {}

    def part(self, batch: EventBatch) -> EventBatch | None:
        """Return what is left of some of the events; None if none of them may be seen."""
        found = self._parts.get(id(batch))
        if found is None:
            found = self._parts[id(batch)] = (batch, self._taken(batch))
        return found[1]

    def _taken(self, batch: EventBatch) -> EventBatch | None:
        whole = self._stripped
        if whole is None or batch.count == len(self._ticks):
            return whole
        rows = np.flatnonzero(np.isin(whole.ticks, batch.ticks))
        return whole.take(rows) if len(rows) else None
