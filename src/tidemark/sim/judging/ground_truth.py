"""Ground truth: every event that was published in a simulated world, and which selectors match it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tidemark.matching.selectors.evaluate import evaluate
from tidemark.matching.selectors.selector import Selector
from tidemark.matching.selectors.tree import Node
from tidemark.matching.topics import TopicPattern
from tidemark.message.schema import Schema


class ViolationError(AssertionError):
    """An invariant of the protocol does not hold."""


@dataclass(frozen=True, slots=True)
class PublishedEvent:
    """One event as its publisher made it, with its encoded message."""

    topic: str
    event: dict[str, Any]
    validity_ms: int
    message: bytes

    def alive_at(self, tick: int, wall: int) -> bool:
        """Whether the event, published at `tick`, is still valid at the time of day `wall`."""
        return not self.validity_ms or tick + self.validity_ms * 1_000 > wall


@dataclass
class GroundTruth:
    """Every published event by its key, and the tick at which each became durable."""

    schema: Schema
    _of: dict[str, PublishedEvent] = field(default_factory=dict)
    _matched: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    _trees: dict[tuple[str, str], Node] = field(default_factory=dict)
    #: pubend -> tick -> key of every event that was ever durable
    durable: dict[str, dict[int, str]] = field(default_factory=dict)
    #: pubend -> the ticks of `durable` in ascending order, in which they also became durable
    _ticks: dict[str, list[int]] = field(default_factory=dict)

    def add(self, topic: str, event: dict[str, Any], validity_ms: int, schema: Schema | None = None) -> bytes:
        """Record an event that is about to be published; returns its encoded message.

        A topic with a `schema` of its own has the fields of all events, and others.
        """
        message = (schema or self.schema).encode(event)
        self._of[event["key"]] = PublishedEvent(topic, event, validity_ms, message)
        return message

    def __getitem__(self, key: str) -> PublishedEvent:
        return self._of[key]

    def become_durable(self, pubend: str, tick: int, key: str) -> None:
        """Record that a sync has made an event durable; ticks of a pubend must ascend."""
        ticks = self._ticks[pubend]
        assert not ticks or tick > ticks[-1]
        ticks.append(tick)
        self.durable[pubend][tick] = key

    def host(self, pubend: str) -> None:
        """Record that a pubend exists."""
        self.durable[pubend] = {}
        self._ticks[pubend] = []

    def within(self, pubend: str, base: int, upto: int) -> list[tuple[int, str]]:
        """Returns the tick and key of every durable event in `(base, upto]`, in order."""
        ticks, keys = self._ticks[pubend], self.durable[pubend]
        return [(tick, keys[tick]) for tick in ticks[bisect_right(ticks, base) : bisect_right(ticks, upto)]]

    def last(self, pubend: str) -> int:
        """Returns the tick of the last durable event of a pubend, or 0 if there is none."""
        return self._ticks[pubend][-1] if self._ticks[pubend] else 0

    def matches(self, pattern: str, selector: str, key: str) -> bool:
        """Whether an event matches, by the reference evaluator, which takes one event at a time."""
        found = self._matched.get((pattern, selector, key))
        if found is None:
            published = self._of[key]
            found = (
                _pattern(pattern).matches(published.topic)
                and evaluate(self._tree(selector, published.topic), lambda path: published.event.get(path[0]))
                is True
            )
            self._matched[pattern, selector, key] = found
        return found

    def _tree(self, selector: str, topic: str) -> Node:
        found = self._trees.get((selector, topic))
        if found is None:
            found = self._trees[selector, topic] = Selector.parse(selector, self.schema, topic).tree
        return found


@cache
def _pattern(text: str) -> TopicPattern:
    return TopicPattern.parse(text)
