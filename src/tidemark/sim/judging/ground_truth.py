"""Facts: everything that was ever published in a simulated world, and which of it is wanted by whom."""

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
    """One event as its publisher made it."""

    topic: str
    event: dict[str, Any]
    validity_ms: int
    message: bytes

    def alive_at(self, tick: int, wall: int) -> bool:
        """Its validity has not passed."""
        return not self.validity_ms or tick + self.validity_ms * 1_000 > wall


@dataclass
class GroundTruth:
    """Every event by its key, what became durable at which tick, and what matches what."""

    schema: Schema
    _of: dict[str, PublishedEvent] = field(default_factory=dict)
    _matched: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    _trees: dict[str, Node] = field(default_factory=dict)
    #: pubend -> tick -> key of every event that was ever durable
    durable: dict[str, dict[int, str]] = field(default_factory=dict)
    #: the same ticks in order, which is the order they became durable in
    _ticks: dict[str, list[int]] = field(default_factory=dict)

    def add(self, topic: str, event: dict[str, Any], validity_ms: int) -> bytes:
        """An event is about to be published; its bytes."""
        message = self.schema.encode(event)
        self._of[event["key"]] = PublishedEvent(topic, event, validity_ms, message)
        return message

    def __getitem__(self, key: str) -> PublishedEvent:
        return self._of[key]

    def become_durable(self, pubend: str, tick: int, key: str) -> None:
        """An event is on disk."""
        ticks = self._ticks[pubend]
        assert not ticks or tick > ticks[-1]
        ticks.append(tick)
        self.durable[pubend][tick] = key

    def host(self, pubend: str) -> None:
        """A pubend exists."""
        self.durable[pubend] = {}
        self._ticks[pubend] = []

    def within(self, pubend: str, base: int, upto: int) -> list[tuple[int, str]]:
        """Ticks and keys of what is durable in `(base, upto]`."""
        ticks, keys = self._ticks[pubend], self.durable[pubend]
        return [(tick, keys[tick]) for tick in ticks[bisect_right(ticks, base) : bisect_right(ticks, upto)]]

    def last(self, pubend: str) -> int:
        """The tick of the last durable event; 0 if there is none."""
        return self._ticks[pubend][-1] if self._ticks[pubend] else 0

    def matches(self, pattern: str, selector: str, key: str) -> bool:
        """Does this event match? By the tests' reference, one event at a time."""
        found = self._matched.get((pattern, selector, key))
        if found is None:
            published = self._of[key]
            found = (
                _pattern(pattern).matches(published.topic)
                and evaluate(self._tree(selector), lambda path: published.event.get(path[0])) is True
            )
            self._matched[pattern, selector, key] = found
        return found

    def _tree(self, selector: str) -> Node:
        found = self._trees.get(selector)
        if found is None:
            found = self._trees[selector] = Selector.parse(selector, self.schema).tree
        return found


@cache
def _pattern(text: str) -> TopicPattern:
    return TopicPattern.parse(text)
