"""Audience: which subscribers of this broker want which events, topic by topic.

A matcher for each topic that has been met, holding the subscriptions whose pattern matches it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidemark.errors import TidemarkError
from tidemark.matching.matcher import Matcher
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.topics import TopicPattern
from tidemark.message.batches.batch import EventBatch
from tidemark.message.batches.reader import Reader
from tidemark.message.registry import Registry

Rows = NDArray[np.int64]
Members = NDArray[np.uint32]


class Audience:
    """All subscriptions that have started somewhere, as matchers."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._subscriptions: dict[int, tuple[TopicPattern, str]] = {}
        self._matchers: dict[str, Matcher] = {}
        #: topic -> the reader that its matcher knows the fields from; a new version brings a new one
        self._readers: dict[str, Reader] = {}
        #: topic -> the subscribers in its matcher
        self._joined: dict[str, set[int]] = {}

    def add(self, subscriber: int, pattern: str, selector: str) -> None:
        """A subscriber joins, or changes what it wants."""
        self.remove(subscriber)
        self._subscriptions[subscriber] = (TopicPattern.parse(pattern), selector)
        for topic in self._matchers:
            self._join(topic, self._matcher(topic), subscriber)

    def remove(self, subscriber: int) -> None:
        """A subscriber leaves; one that is not there is left in peace."""
        if self._subscriptions.pop(subscriber, None) is None:
            return
        for topic, matcher in self._matchers.items():
            if subscriber in self._joined[topic]:
                self._joined[topic].remove(subscriber)
                matcher.remove(subscriber)

    def matches(self, batch: EventBatch) -> Iterator[tuple[Rows, Members]]:
        """Rows of the batch and the subscribers that want just these; what nobody wants is left out."""
        of_shape = batch.prelude("shape")
        for topic in sorted({shape.topic for shape in batch.shapes}):
            shapes = [index for index, shape in enumerate(batch.shapes) if shape.topic == topic]
            rows = np.flatnonzero(np.isin(of_shape, shapes))
            if len(rows) == 0:
                continue
            matcher = self._matcher(topic)
            part = batch if len(rows) == batch.count else batch.take(rows)
            sets = matcher.match(self._registry.topics[topic].reader.columns(part))
            for match_set in np.unique(sets[sets != 0]).tolist():
                yield rows[sets == match_set], matcher.members(match_set)

    def _matcher(self, topic: str) -> Matcher:
        found, reader = self._matchers.get(topic), self._registry.topics[topic].reader
        if found is not None and self._readers[topic] is not reader:
            self._readers[topic] = reader
            found.retype(reader)
        if found is None:
            found = self._matchers[topic] = Matcher(reader)
            self._readers[topic] = reader
            self._joined[topic] = set()
            for subscriber in self._subscriptions:
                self._join(topic, found, subscriber)
        return found

    def _join(self, topic: str, matcher: Matcher, subscriber: int) -> None:
        pattern, selector = self._subscriptions[subscriber]
        if not pattern.matches(topic):
            return
        try:
            parsed = Selector.parse(selector, self._registry.topics[topic].reader)
        except TidemarkError:
            # A pattern can reach topics that lack the selector's fields: there it is never true.
            return
        matcher.add(subscriber, parsed)
        self._joined[topic].add(subscriber)
